"""Prompts: texts that a model wants in front of a sentence, by name.

Names and fallbacks are those of sentence-transformers. Its models are asked for `query` and `document`, which are empty
where a folder does not name them.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxwhiten.errors import check_name

ROLES: dict[str, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""What a sentence is in a search, and the names its prompt may have, the first that is there."""


def prompt_named(prompts: Mapping[str, str], name: str) -> str:
    """The text of a prompt."""
    known = {**dict.fromkeys(ROLES, ""), **prompts}
    check_name("prompt", name, known)
    return known[name]


def prompt_of_role(prompts: Mapping[str, str], role: str) -> str:
    """The prompt of a query or a document; empty where there is none."""
    return next((prompts[name] for name in ROLES[role] if name in prompts), "")


def prompt_for(prompts: Mapping[str, str], role: str) -> str | None:
    """The prompt of a role; None, for the default one, where neither queries nor documents have a prompt."""
    apart = any(prompts.get(name) for names in ROLES.values() for name in names)
    return prompt_of_role(prompts, role) if apart else None
