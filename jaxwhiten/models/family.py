"""Encoder families as data: keys of `config.json`, tensor names, fixed choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxwhiten.errors import ModelError
from jaxwhiten.models.config import EncoderConfig, check_supported, read_fields


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
    """One encoder family: how its `config.json` and tensors are named, and its fixed choices."""

    architecture: str
    names: Names
    # That published checkpoints put before the names.
    prefixes: tuple[str, ...]
    # `EncoderConfig` field -> key in `config.json`; of several the first is written, and all are read.
    keys: Mapping[str, str | tuple[str, ...]]
    # `EncoderConfig` fields where `config.json` has no such key, or leaves it out.
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Keys of `config.json` that may be left out or null, and the only other value of each that is supported.
    supported: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Further fields from `config.json`: (parsed file, its path, fields so far) -> fields.
    read: Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, Any]] = _nothing
    # Further keys of `config.json`.
    write: Callable[[EncoderConfig], dict[str, Any]] = _nothing

    def parse_config(self, raw: Mapping[str, Any], where: str) -> EncoderConfig:
        """The configuration in a parsed `config.json`; `where` is its path, for messages."""
        position = raw.get("position_embedding_type") or "absolute"
        if position != "absolute":
            raise ModelError(f"{where}: position_embedding_type {position!r} is not supported; only 'absolute' is.")
        if raw.get("is_decoder"):
            raise ModelError(f"{where}: is_decoder is set; only encoders are supported.")
        check_supported(raw, self.supported, where)
        fields = read_fields(raw, self.keys, self.defaults, where)
        return EncoderConfig(model_type=raw["model_type"], **(fields | self.read(raw, where, fields)))

    def head(self, names: Names) -> Family:
        """The family with the tensor names of a head, which have no prefix."""
        word = {"embeddings.word": self.names["embeddings.word"]}
        return dataclasses.replace(self, names={**word, **names}, prefixes=("",))

    def config_json(self, config: EncoderConfig) -> dict[str, Any]:
        """The inverse of `parse_config`."""
        raw = {"model_type": config.model_type, "architectures": [self.architecture]}
        raw |= {key if isinstance(key, str) else key[0]: getattr(config, name) for name, key in self.keys.items()}
        return raw | self.write(config)
