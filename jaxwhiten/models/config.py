"""The configuration every encoder shares, and how its fields are read from a Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxwhiten.errors import ModelError

MAX_LAYERS = 512
# Far beyond every published encoder of these families: a config outside these limits is damaged or hostile.
_LIMITS: dict[str, tuple[float, float]] = {
    "vocab_size": (1, 5_000_000),
    "hidden_size": (1, 16_384),
    "num_layers": (1, MAX_LAYERS),
    "num_heads": (1, 512),
    "intermediate_size": (1, 131_072),
    "max_positions": (1, 1_048_576),
    "type_vocab_size": (0, 1024),
    "embedding_size": (1, 16_384),
    "layer_groups": (0, 512),
    "relative_buckets": (0, 4096),
    "local_window": (0, 1_048_576),
    "layer_norm_eps": (1e-30, 0.5),
    "dropout": (0.0, 0.99),
    "attention_dropout": (0.0, 0.99),
    "initializer_range": (0.0, 1e6),
}
_MAX_PARAMETERS = 20_000_000_000


class Attention(NamedTuple):
    """How layers of one kind attend; JAX and the ONNX graph make one mask and one table of angles for each kind.

    Attributes:
      window: Distance to either side that attention reaches; None for everywhere.
      rotary_theta: Base of the rotary position embedding; 0 for none.
    """

    window: int | None
    rotary_theta: float


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Configuration of an encoder. All sizes are counts; rates are probabilities.

    The fields up to `pooler` are BERT's; the others describe how families differ from BERT, and default to BERT.

    Attributes:
      model_type: Family name as in `config.json`, such as `"bert"`.
      vocab_size: Rows of the word embedding.
      hidden_size: Width d of the hidden states.
      num_layers: Transformer layers.
      num_heads: Attention heads; divides `hidden_size`.
      intermediate_size: Width of the feed-forward layer.
      max_positions: Rows of the position embedding, or the longest input of a rotary encoder.
      type_vocab_size: Rows of the token-type embedding; 0 for none.
      layer_norm_eps: Epsilon of every layer norm.
      hidden_act: Activation of the feed-forward layer.
      dropout: Rate after embeddings, attention output and feed-forward output, in training.
      attention_dropout: Rate on attention probabilities, in training.
      initializer_range: Standard deviation of the initial weights.
      pad_token_id: Token id used for padding.
      pooler: Whether the model has BERT's pooler (tanh layer on the first token).
      position_offset: Row of the position embedding for the first token.
      learned_positions: Whether there is a position embedding.
      embedding_size: Width of the embeddings; 0 means `hidden_size`.
      embedding_projection: Whether a dense layer projects the embeddings; always True if the widths differ.
      layer_groups: Number of weight sets, each shared by consecutive layers; 0 for one set per layer.
      relative_buckets: Rows of a learned bias on attention scores by relative position; 0 for none.
      rotary_theta: Base of the rotary position embedding; 0 for none.
      local_layers: Layers, counted from 0, with local attention.
      local_window: Distance to either side that local attention reaches.
      local_rotary_theta: Base of the rotary position embedding of local layers.
      pre_norm: Whether norms precede attention and feed-forward, with a final one after the last layer.
      gated: Whether the feed-forward layer's activation is multiplied by a second dense layer.
      attention_bias: Whether the dense layers of attention have biases.
      feed_forward_bias: Whether the dense layers of the feed-forward layer have biases.
      norm_bias: Whether the layer norms have biases.
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
    position_offset: int = 0
    learned_positions: bool = True
    embedding_size: int = 0
    embedding_projection: bool = False
    layer_groups: int = 0
    relative_buckets: int = 0
    rotary_theta: float = 0.0
    local_layers: tuple[int, ...] = ()
    local_window: int = 0
    local_rotary_theta: float = 0.0
    pre_norm: bool = False
    gated: bool = False
    attention_bias: bool = True
    feed_forward_bias: bool = True
    norm_bias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "embedding_size", self.embedding_size or self.hidden_size)
        for name, (least, most) in _LIMITS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ModelError(f"{name} is {value!r}; expected a number from {least} to {most}.")
        if self.embedding_size != self.hidden_size:
            object.__setattr__(self, "embedding_projection", True)
        heads = self.num_heads
        faults = (
            (self.hidden_size % heads, f"hidden_size {self.hidden_size} is not a multiple of num_heads {heads}"),
            (self.rotary_theta and self.head_size % 2, f"heads of {self.head_size} are odd; rotary ones must be even"),
            (not 0 <= self.pad_token_id < self.vocab_size, f"pad_token_id {self.pad_token_id} is no token"),
            (self.longest_input < 1, f"{self.max_positions} positions leave none after an offset of the padding id"),
            (self.layer_groups > self.num_layers, f"{self.layer_groups} groups for {self.num_layers} layers"),
            (self.parameters > _MAX_PARAMETERS, f"{self.parameters:.1e} parameters are more than are read"),
        )
        for wrong, fault in faults:
            if wrong:
                raise ModelError(f"{fault}.")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def attention(self) -> tuple[Attention, ...]:
        """How each layer attends."""
        everywhere = Attention(None, self.rotary_theta)
        nearby = Attention(self.local_window, self.local_rotary_theta)
        return tuple(nearby if layer in self.local_layers else everywhere for layer in range(self.num_layers))

    @property
    def layer_flops(self) -> int:
        """Floating-point operations of a layer's dense products per token, without those of attention."""
        return 2 * self.hidden_size * (4 * self.hidden_size + (2 + self.gated) * self.intermediate_size)

    @property
    def longest_input(self) -> int:
        """Maximum input length in tokens."""
        return self.max_positions - self.position_offset

    @property
    def parameters(self) -> int:
        """Number of parameters, without layer norms and biases."""
        rows = self.vocab_size + self.type_vocab_size + self.max_positions * self.learned_positions
        embeddings = (rows + self.hidden_size * self.embedding_projection) * self.embedding_size
        return embeddings + (self.layer_groups or self.num_layers) * self.layer_flops // 2


_JSON_TYPES: dict[str, Any] = {"int": int, "float": (int, float), "str": str, "bool": bool}
_FIELDS = {field.name: field for field in dataclasses.fields(EncoderConfig)}


def typed(value: Any, kind: str, key: str) -> Any:
    """The value of a key of `config.json`, once its type is checked; as a float if `kind` is `"float"`."""
    if not isinstance(value, _JSON_TYPES[kind]) or isinstance(value, bool) != (kind == "bool"):
        raise ModelError(f"{key} is {value!r}; expected a value of type {kind}.")
    try:
        return float(value) if kind == "float" else value
    except OverflowError:
        raise ModelError(f"{key} is a whole number too large for a float.") from None


def read_fields(
    raw: Mapping[str, Any], keys: Mapping[str, str | tuple[str, ...]], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """`EncoderConfig` fields from a parsed `config.json`, by a family's `keys` and `defaults`.

    Fields that are neither found nor in `defaults` are left out.
    """
    fields = dict(defaults)
    for name, alternatives in keys.items():
        alternatives = (alternatives,) if isinstance(alternatives, str) else alternatives
        key = next((key for key in alternatives if raw.get(key) is not None), None)
        if key is not None:
            fields[name] = typed(raw[key], str(_FIELDS[name].type), key)
        elif _FIELDS[name].default is dataclasses.MISSING and name not in defaults:
            raise ModelError(f"the key {alternatives[0]!r} is missing; is this the config.json of an encoder?")
    return fields


def check_supported(raw: Mapping[str, Any], supported: Mapping[str, Any]) -> None:
    """Refuses keys of a `config.json` whose value is neither null nor the only supported one."""
    for key, value in supported.items():
        if raw.get(key) is not None and raw[key] != value:
            raise ModelError(f"{key} is {raw[key]!r}; only {value!r} is supported.")


def read_rotary_theta(raw: Mapping[str, Any], kind: str | None, older_key: str, default: float) -> float:
    """The base of a rotary position embedding, from `rope_parameters` or the key of older files.

    `kind` is the entry of `rope_parameters` to read, or None if it is not nested.
    """
    parameters = raw.get("rope_parameters") or {}
    if kind is not None and isinstance(parameters, Mapping):
        parameters = parameters.get(kind) or {}
    if not isinstance(parameters, Mapping) or parameters.get("rope_type", "default") != "default":
        raise ModelError(f"rope_parameters has {parameters!r:.80}; only rope_type 'default' is supported.")
    if raw.get("rope_scaling") is not None:
        raise ModelError(f"rope_scaling is {raw['rope_scaling']!r:.80}; scaled positions are not supported.")
    value = next((v for v in (parameters.get("rope_theta"), raw.get(older_key)) if v is not None), default)
    theta: float = typed(value, "float", "rope_theta")
    if not 0 < theta < math.inf:
        raise ModelError(f"rope_theta is {theta}; it must be above 0.")
    return theta
