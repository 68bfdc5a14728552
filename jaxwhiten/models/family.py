"""Encoder families as data: keys of `config.json`, tensor names, fixed choices, heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxwhiten.models.config import EncoderConfig, Rope, check_supported, read_fields, rotary_keys
from jaxwhiten.types import Fields, Json


class Part(NamedTuple):
    """One of several equal parts of a tensor, cut along the outputs; some checkpoints fuse query, key and value."""

    name: str
    part: int
    parts: int


QUERY_KEY_VALUE = ("attention.query", "attention.key", "attention.value")
# `EncoderConfig` fields of encoders with rotary positions, a gate, and neither biases nor dropout as published.
ROTARY: Fields = {
    "pooler": False,
    "learned_positions": False,
    "gated": True,
    "hidden_act": "silu",
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "attention_bias": False,
    "feed_forward_bias": False,
}

# Our parameter path -> the checkpoint's tensor, both without the last part (kernel, scale, ...). "*" is the number of a
# layer. If there are several tensor names, all are read and the first is written.
Place = str | Part
Names = Mapping[str, Place | tuple[Place, ...]]


def fused(tensor: str, parameters: Sequence[str] = QUERY_KEY_VALUE) -> Names:
    """The names of a layer's parameters that checkpoints fuse into one tensor, in this order."""
    return {f"layers.*.{name}": Part(tensor, part, len(parameters)) for part, name in enumerate(parameters)}


class PairForm(NamedTuple):
    """The head of a family's classifiers of sentence pairs: prefixes of its tensors, and its activation."""

    classifier: str = "classifier"  # computes the logits
    dense: str = ""  # the layer before it; "" if that is the encoder's own pooler
    activation: str = "tanh"  # between the two

    @property
    def names(self) -> Names:
        return {"dense": self.dense, "classifier": self.classifier}


@dataclasses.dataclass(frozen=True)
class Family:
    """One encoder family: how its `config.json` and tensors are named, its fixed choices, and its heads."""

    stem: str  # start of the names of its architectures, such as "Bert" of "BertModel"
    names: Names  # the tensor of each parameter
    prefixes: tuple[str, ...]  # of the names in published checkpoints; the second is for checkpoints with a head
    # `EncoderConfig` field -> key in `config.json`. If there are several keys, all are read, the first is written.
    keys: Mapping[str, str | tuple[str, ...]]
    pairs: PairForm | None = None
    # `EncoderConfig` fields that `config.json` may omit or has no key for.
    defaults: Fields = dataclasses.field(default_factory=dict)
    # Keys of `config.json` that may be missing or null, each with its only other supported value.
    supported: Fields = dataclasses.field(default_factory=dict)
    # Further fields from `config.json`: (parsed file, fields so far) -> fields.
    read: Callable[[Fields, Fields], Json] = lambda *_: {}
    write: Callable[[EncoderConfig], Json] = lambda *_: {}  # further keys of `config.json`
    # Rotary positions of all layers, or of the global and the local ones.
    rotary: tuple[Rope, ...] = ()

    def parse_config(self, raw: Fields) -> EncoderConfig:
        """The configuration in a parsed `config.json`."""
        check_supported(raw, {"position_embedding_type": "absolute", "is_decoder": False, **self.supported})
        fields = read_fields(raw, self.keys, self.defaults)
        for rope, prefix in zip(self.rotary, ("", "local_"), strict=False):
            fields[f"{prefix}rotary_theta"], fields[f"{prefix}rotary_scaling"] = rope.read(raw)
        return EncoderConfig(**{"model_type": raw["model_type"], **fields, **self.read(raw, fields)})

    def config_json(self, config: EncoderConfig, task: str = "Model") -> Json:
        """The inverse of `parse_config`; `task` is the end of the architecture's name."""
        raw = {"model_type": config.model_type, "architectures": [self.stem + task]}
        raw |= {key if isinstance(key, str) else key[0]: getattr(config, name) for name, key in self.keys.items()}
        raw |= rotary_keys(config, len(self.rotary)) if self.rotary else {}
        return raw | self.write(config)

    def head(self, names: Names) -> Family:
        """This family with the tensor names of a head, which have no prefix."""
        word = {"embeddings.word": self.names["embeddings.word"]}
        return dataclasses.replace(self, names={**word, **names}, prefixes=("",))
