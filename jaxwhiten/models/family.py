"""Encoder families as data: keys of `config.json`, tensor names, fixed choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxwhiten.errors import ModelError
from jaxwhiten.models.config import EncoderConfig, read_fields


class Part(NamedTuple):
    """One of several equal parts of a tensor, cut along the outputs: checkpoints fuse query, key and value."""

    name: str
    part: int
    parts: int


# Our parameter path -> the checkpoint's tensor, both without the last part (kernel, scale, ...). "*" is the number of
# a layer. Of several tensor names the first is written, and all are read.
Place = str | Part
Names = Mapping[str, Place | tuple[Place, ...]]


def _nothing(*_: Any) -> dict[str, Any]:
    return {}


@dataclasses.dataclass(frozen=True)
class Family:
    """One encoder family.

    Attributes:
      architecture: Name written into an exported `config.json`.
      names: Our parameter paths -> the checkpoint's tensors.
      prefixes: Prefixes that published checkpoints put before the names.
      keys: `EncoderConfig` field -> key in `config.json`; of several the first is written, and all are read.
      defaults: `EncoderConfig` fields where `config.json` has no such key, or leaves it out.
      read: Further fields from `config.json`: (parsed file, its path, fields so far) -> fields.
      write: Further keys of `config.json`.
    """

    architecture: str
    names: Names
    prefixes: tuple[str, ...]
    keys: Mapping[str, str | tuple[str, ...]]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read: Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, Any]] = _nothing
    write: Callable[[EncoderConfig], dict[str, Any]] = _nothing

    def parse_config(self, raw: Mapping[str, Any], where: str) -> EncoderConfig:
        """Reads a `config.json`.

        Args:
          raw: The parsed file.
          where: The file's path, for messages.

        Returns:
          The configuration.

        Raises:
          ModelError: A key is missing or requests an unsupported feature.
        """
        position = raw.get("position_embedding_type") or "absolute"
        if position != "absolute":
            raise ModelError(f"{where}: position_embedding_type {position!r} is not supported; only 'absolute' is.")
        if raw.get("is_decoder"):
            raise ModelError(f"{where}: is_decoder is set; only encoders are supported.")
        fields = read_fields(raw, self.keys, self.defaults, where)
        return EncoderConfig(model_type=raw["model_type"], **(fields | self.read(raw, where, fields)))

    def config_json(self, config: EncoderConfig) -> dict[str, Any]:
        """The inverse of `parse_config`."""
        raw = {"model_type": config.model_type, "architectures": [self.architecture]}
        raw |= {key if isinstance(key, str) else key[0]: getattr(config, name) for name, key in self.keys.items()}
        return raw | self.write(config)
