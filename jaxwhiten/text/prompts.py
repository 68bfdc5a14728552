"""Prompts: texts that a model expects in front of a sentence, by name.

Names and fallbacks are those of sentence-transformers. `query` and `document` always exist; they are empty if the
folder does not define them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxwhiten.errors import check_name

ROLES: dict[str, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The roles of sentences in a search, each with the names of its prompt in order of preference."""


def prompt_named(prompts: Mapping[str, str], name: str) -> str:
    """The text of a prompt by its name."""
    known = {**dict.fromkeys(ROLES, ""), **prompts}
    check_name("prompt", name, known)
    return known[name]


def prompt_of_role(prompts: Mapping[str, str], role: str) -> str:
    """The prompt of a query or a document; empty if there is none."""
    return next((prompts[name] for name in ROLES[role] if name in prompts), "")


def in_role(prompts: Mapping[str, str], role: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of `Encoder.encode` with the prompt of a role, unless they have a `prompt_name` or a `prompt`."""
    given = any(options.get(name) is not None for name in ("prompt_name", "prompt"))
    return options if given else {**options, "prompt": prompt_of_role(prompts, role)}


def prompt_for(prompts: Mapping[str, str], role: str) -> str | None:
    """The prompt of a role; None, which means the default prompt, if neither queries nor documents have one."""
    apart = any(prompts.get(name) for names in ROLES.values() for name in names)
    return prompt_of_role(prompts, role) if apart else None
