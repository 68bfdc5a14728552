"""Encoder families as data: keys of `config.json`, tensor names, fixed choices, heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxwhiten.models.config import EncoderConfig, check_supported, read_fields


class Part(NamedTuple):
    """One of several equal parts of a tensor, cut along the outputs: checkpoints fuse query, key and value."""

    name: str
    part: int
    parts: int


THIRDS = {"query": (0, 3), "key": (1, 3), "value": (2, 3)}  # of a tensor that fuses them

# Our parameter path -> the checkpoint's tensor, both without the last part (kernel, scale, ...). "*" is the number of
# a layer. Of several tensor names the first is written, and all are read.
Place = str | Part
Names = Mapping[str, Place | tuple[Place, ...]]


class MaskedForm(NamedTuple):
    """The head of a family's masked language models: prefixes of its tensors, and how it differs from BERT's.

    Attributes:
      dense, norm: Of the dense layer and of the layer norm.
      output: Of the output bias. Checkpoints store it under several; the first is written, all are read.
      activation: `""` for the encoder's.
      epsilon: Of the layer norm; 0 for the encoder's.
      dense_bias: Whether the dense layer has a bias.
      supported: Keys of `config.json`, and the only value of each that is supported.
    """

    dense: str
    norm: str
    output: tuple[str, ...]
    activation: str = ""
    epsilon: float = 0.0
    dense_bias: bool = True
    supported: Mapping[str, Any] = MappingProxyType({})

    @property
    def names(self) -> Names:
        return {"dense": self.dense, "norm": self.norm, "": self.output}


class PairForm(NamedTuple):
    """The head of a family's classifiers of sentence pairs: prefixes of its tensors, and its activation.

    Attributes:
      classifier: Of the layer that gives the logits.
      dense: Of the layer before it; `""` where that is the encoder's own pooler.
      activation: Between the two.
    """

    classifier: str = "classifier"
    dense: str = ""
    activation: str = "tanh"

    @property
    def names(self) -> Names:
        return {"dense": self.dense, "classifier": self.classifier}


@dataclasses.dataclass(frozen=True)
class Family:
    """One encoder family: how its `config.json` and tensors are named, its fixed choices, and its heads.

    Attributes:
      stem: What the names of its architectures begin with, such as `"Bert"` of `"BertModel"`.
      names: The tensor of each parameter.
      prefixes: That published checkpoints put before the names; the second is of those with a head.
      keys: `EncoderConfig` field -> key in `config.json`; of several the first is written, and all are read.
      masked: The head of its masked language models; None where there are none that are supported.
      pairs: The head of its classifiers of sentence pairs; None where there are none.
      defaults: `EncoderConfig` fields where `config.json` has no such key, or leaves it out.
      supported: Keys of `config.json` that may be left out or null, and the only other value of each that is supported.
      read: Further fields from `config.json`: (parsed file, fields so far) -> fields.
      write: Further keys of `config.json`.
    """

    stem: str
    names: Names
    prefixes: tuple[str, ...]
    keys: Mapping[str, str | tuple[str, ...]]
    masked: MaskedForm | None = None
    pairs: PairForm | None = None
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    supported: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = lambda *_: {}
    write: Callable[[EncoderConfig], dict[str, Any]] = lambda *_: {}

    def parse_config(self, raw: Mapping[str, Any]) -> EncoderConfig:
        """The configuration in a parsed `config.json`."""
        check_supported(raw, {"position_embedding_type": "absolute", "is_decoder": False, **self.supported})
        fields = read_fields(raw, self.keys, self.defaults)
        return EncoderConfig(**{"model_type": raw["model_type"], **fields, **self.read(raw, fields)})

    def config_json(self, config: EncoderConfig, task: str = "Model") -> dict[str, Any]:
        """The inverse of `parse_config`; `task` is what the name of the architecture ends with."""
        raw = {"model_type": config.model_type, "architectures": [self.stem + task]}
        raw |= {key if isinstance(key, str) else key[0]: getattr(config, name) for name, key in self.keys.items()}
        return raw | self.write(config)

    def head(self, form: MaskedForm | PairForm) -> Family:
        """The family with the tensor names of a head, which have no prefix."""
        word = {"embeddings.word": self.names["embeddings.word"]}
        return dataclasses.replace(self, names={**word, **form.names}, prefixes=("",))
