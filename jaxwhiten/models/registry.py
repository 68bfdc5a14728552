"""Which `model_type`s are supported, and what differs between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from flax import nnx

from jaxwhiten.errors import ModelError
from jaxwhiten.models import bert
from jaxwhiten.models.config import EncoderConfig


@dataclasses.dataclass(frozen=True)
class Family:
    """One encoder family.

    Attributes:
      build: The module's class: `build(config, rngs=..., dtype=..., remat=...)`.
      parse_config: Parsed `config.json` and its path -> `EncoderConfig`.
      config_keys: `EncoderConfig` field -> key in `config.json`.
      names: Our parameter path -> the checkpoint's tensor name (see `bert.NAMES`).
      prefixes: Prefixes that published checkpoints put before the names.
      architecture: Name written into an exported `config.json`.
    """

    build: Callable[..., nnx.Module]
    parse_config: Callable[[dict[str, Any], str], EncoderConfig]
    config_keys: dict[str, str]
    names: dict[str, str]
    prefixes: tuple[str, ...]
    architecture: str


FAMILIES: dict[str, Family] = {
    "bert": Family(bert.Bert, bert.parse_config, bert.CONFIG_KEYS, bert.NAMES, ("", "bert."), "BertModel"),
}


def family_of(model_type: object, where: str) -> Family:
    """The family of a `config.json`'s `model_type`.

    Args:
      model_type: The value found, or None.
      where: The file's path, for messages.

    Raises:
      ModelError: The type is missing or not supported.
    """
    if not isinstance(model_type, str):
        raise ModelError(f"{where}: no model_type; is this the config.json of a Hugging Face model?")
    if model_type not in FAMILIES:
        raise ModelError(f"{where}: model_type {model_type!r} is not supported. Supported: {', '.join(FAMILIES)}.")
    return FAMILIES[model_type]
