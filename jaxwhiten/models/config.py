"""The configuration every encoder shares, read from a Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxwhiten.errors import ModelError

# No published encoder of this family is near these; a config that asks for more is damaged or hostile.
_LIMITS = {
    "vocab_size": 5_000_000,
    "hidden_size": 16_384,
    "num_layers": 512,
    "num_heads": 512,
    "intermediate_size": 131_072,
    "max_positions": 1_048_576,
    "type_vocab_size": 1024,
}
_MAX_PARAMETERS = 20_000_000_000


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """What an encoder is made of. All sizes are counts; rates are probabilities.

    Attributes:
      model_type: Family name as in `config.json`, such as `"bert"`.
      vocab_size: Rows of the word embedding.
      hidden_size: Width d of the hidden states.
      num_layers: Transformer layers.
      num_heads: Attention heads; divides `hidden_size`.
      intermediate_size: Width of the feed-forward layer.
      max_positions: Rows of the position embedding, hence the longest input in tokens.
      type_vocab_size: Rows of the token-type embedding.
      layer_norm_eps: Epsilon of every layer norm.
      hidden_act: Activation of the feed-forward layer.
      dropout: Rate after embeddings, attention output and feed-forward output, in training.
      attention_dropout: Rate on attention probabilities, in training.
      initializer_range: Standard deviation of the initial weights.
      pad_token_id: Token id used for padding.
      pooler: Whether the model has BERT's pooler (tanh layer on the first token).
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int = 0
    pooler: bool = True

    def __post_init__(self) -> None:
        for name, limit in _LIMITS.items():
            value = getattr(self, name)
            if not 1 <= value <= limit:
                raise ModelError(f"config: {name} is {value!r}; expected a whole number from 1 to {limit}.")
        if self.hidden_size % self.num_heads:
            raise ModelError(f"config: hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}.")
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ModelError(f"config: {name} is {value!r}; expected a rate from 0 to 1.")
        if self.parameters > _MAX_PARAMETERS:
            raise ModelError(
                f"config: asks for about {self.parameters:.1e} parameters; more than {_MAX_PARAMETERS:.0e} is refused."
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def parameters(self) -> int:
        """Number of weights, to within the layer norms and biases."""
        embeddings = (self.vocab_size + self.max_positions + self.type_vocab_size) * self.hidden_size
        layer = 4 * self.hidden_size**2 + 2 * self.hidden_size * self.intermediate_size
        return embeddings + self.num_layers * layer


_JSON_TYPES = {"int": int, "float": (int, float), "str": str, "bool": bool}


def _typed(value: Any, kind: str, where: str) -> Any:
    wrong_bool = isinstance(value, bool) and kind != "bool"
    if wrong_bool or not isinstance(value, _JSON_TYPES[kind]):
        raise ModelError(f"{where} is {value!r}; expected a value of type {kind}.")
    return float(value) if kind == "float" else value


def read_fields(raw: dict[str, Any], names: dict[str, str], where: str) -> dict[str, Any]:
    """Takes `EncoderConfig` fields out of a parsed `config.json`.

    Args:
      raw: The parsed file.
      names: `EncoderConfig` field to the key that holds it in the file.
      where: The file's path, for messages.

    Returns:
      The fields found; those with a default may be absent.

    Raises:
      ModelError: A field without a default is missing, or a value is of the wrong type.
    """
    fields = {}
    for field in dataclasses.fields(EncoderConfig):
        key = names.get(field.name, field.name)
        if key in raw and raw[key] is not None:
            fields[field.name] = _typed(raw[key], str(field.type), f"{where}: {key}")
        elif field.default is dataclasses.MISSING and field.name != "model_type":
            raise ModelError(f"{where}: the key {key!r} is missing; is this the config.json of an encoder?")
    return fields
