"""The configuration that all encoders share, and functions that read its fields from a Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxwhiten import io
from jaxwhiten.errors import Bounds, ModelError, check_name
from jaxwhiten.options import bounded, check_bounds
from jaxwhiten.types import Fields, Json

MAX_LAYERS = 512
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")  # in `layers`
MOST_POSITIONS = 1 << 20
_MOST_THETA = 1e30
_MAX_PARAMETERS = 40_000_000_000


@dataclasses.dataclass(frozen=True)
class RotaryScaling:
    """How rotary positions are stretched beyond the input lengths of the pretraining.

    References:
      Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", sections 3.2 and 3.4.
    """

    factor: float = bounded(dataclasses.MISSING, 1.0, 1e6)  # divisor of the angles
    # The longest input of the pretraining, for YaRN; 0 divides all angles alike.
    original: int = bounded(dataclasses.MISSING, 0, (1 << 31) - 1)
    fast: float = bounded(32.0, 0.0, above=True)  # turns within `original` above which YaRN keeps a frequency
    slow: float = bounded(1.0, 0.0, above=True)  # turns below which YaRN divides a frequency
    attention: float = bounded(1.0, 0.0)  # factor of the rotated queries and keys
    growth: float = bounded(0.0, 0.0)  # queries are multiplied by 1 + growth · ln(1 + ⌊position / original⌋)

    def __post_init__(self) -> None:
        check_bounds(self, ModelError)


class Attention(NamedTuple):
    """The attention of layers of one kind; JAX and the ONNX graph make a mask and a table of angles for each."""

    window: int | None  # distance to either side that attention reaches; None for no limit
    rotary_theta: float  # base of the rotary position embedding; 0 for none
    scaling: RotaryScaling | None  # of the rotary position embedding
    causal: bool  # whether tokens attend only to themselves and earlier tokens


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Configuration of an encoder. All sizes are counts; rates are probabilities.

    The fields up to `pooler` are BERT's. The others describe how families differ from BERT; their defaults are BERT.
    The bounds are far beyond every published encoder: a config outside them is damaged or malicious.

    >>> load_config(resolve_folder("jaxwhiten-tiny")).vocab_size
    10000
    """

    model_type: str  # as in `config.json`, such as "bert"
    vocab_size: int = bounded(dataclasses.MISSING, 1, 5_000_000)  # rows of the word embedding
    hidden_size: int = bounded(dataclasses.MISSING, 1, 16_384)  # width d of the hidden states
    num_layers: int = bounded(dataclasses.MISSING, 1, MAX_LAYERS)
    num_heads: int = bounded(dataclasses.MISSING, 1, 512)
    intermediate_size: int = bounded(dataclasses.MISSING, 1, 131_072)  # width of the feed-forward layer
    # Rows of the position embedding, or the longest input of a rotary encoder.
    max_positions: int = bounded(dataclasses.MISSING, 1, MOST_POSITIONS)
    type_vocab_size: int = bounded(2, 0, 1024)  # rows of the token-type embedding; 0 for none
    layer_norm_eps: float = bounded(1e-12, 1e-30, 0.5)  # of every norm
    hidden_act: str = "gelu"  # of the feed-forward layer
    dropout: float = bounded(0.1, 0.0, 0.99)  # after embeddings, attention output and feed-forward output, in training
    attention_dropout: float = bounded(0.1, 0.0, 0.99)  # on attention probabilities, in training
    initializer_range: float = bounded(0.02, 0.0, 1e6)  # standard deviation of the initial weights
    pad_token_id: int = 0
    pooler: bool = True  # whether the model has BERT's pooler (tanh layer on the first token)
    position_offset: int = 0  # row of the position embedding for the first token
    learned_positions: bool = True  # whether there is a position embedding
    embedding_size: int = bounded(0, 0, 16_384)  # width of the embeddings; 0 means `hidden_size`
    embedding_projection: bool = False  # whether a dense layer projects the embeddings; always if the widths differ
    # Sets of weights, each shared by consecutive layers; 0 for one set per layer.
    layer_groups: int = bounded(0, 0, 512)
    # Rows of a learned bias on attention scores by relative position; 0 for none.
    relative_buckets: int = bounded(0, 0, 4096)
    rotary_theta: float = 0.0  # base of the rotary position embedding; 0 for none
    local_layers: tuple[int, ...] = ()  # layers, counted from 0, with local attention
    local_window: int = bounded(0, 0, 1_048_576)  # distance to either side that local attention reaches
    local_rotary_theta: float = 0.0  # base of the rotary position embedding of local layers
    pre_norm: bool = False  # whether norms precede attention and feed-forward, with a final one after the last layer
    gated: bool = False  # whether the feed-forward layer's activation is multiplied by a second dense layer
    attention_bias: bool = True  # of the dense layers of attention
    feed_forward_bias: bool = True  # of the dense layers of the feed-forward layer
    norm_bias: bool = True  # of the layer norms
    norm: str = "layer"  # kind of the norms; or "rms", or "rms, 1 + w" if files store the weights minus 1
    output_norms: bool = False  # whether outputs of attention and feed-forward are normalized before they are added
    embedding_norm: bool = True  # with it, the first layer of a pre-norm encoder has no norm before its attention
    embedding_scale: float = bounded(1.0, 1e-6, 1e6)  # factor of the word embeddings
    down_bias: bool = False  # of the last dense layer of the feed-forward layer, even if the others have none
    # Key and value heads, each shared by consecutive query heads; 0 means `num_heads`.
    num_kv_heads: int = bounded(0, 0, 512)
    head_size: int = bounded(0, 0, 16_384)  # width of a head; 0 means `hidden_size / num_heads`
    query_scalar: float = bounded(0.0, 0.0, 1e6)  # scores are divided by its square root; 0 means the width of a head
    head_norm: bool = False  # whether each head of queries and keys is normalized, before it is rotated
    causal: bool = False  # whether tokens attend only to themselves and earlier tokens
    expert_layers: tuple[int, ...] = ()  # layers, counted from 0, with experts instead of a feed-forward layer
    experts: int = bounded(0, 0, 1024)  # in such a layer, each as wide as a feed-forward layer
    experts_taken: int = 0  # for each token
    # From this distance on, relative positions share the last bucket.
    relative_distance: int = bounded(128, 1, 1_048_576)
    rotary_scaling: RotaryScaling | None = None
    local_rotary_scaling: RotaryScaling | None = None  # of local layers

    def __post_init__(self) -> None:
        check_bounds(self, ModelError)
        check_name("hidden_act", self.hidden_act, ACTIVATIONS)
        heads = self.num_heads
        if not self.head_size and self.hidden_size % heads:
            raise ModelError(f"hidden_size {self.hidden_size} is not a multiple of num_heads {heads}.")
        usual = {"embedding_size": self.hidden_size, "head_size": self.hidden_size // heads, "num_kv_heads": heads}
        for name, value in usual.items():
            object.__setattr__(self, name, getattr(self, name) or value)
        if self.embedding_size != self.hidden_size:
            object.__setattr__(self, "embedding_projection", True)
        rotates = self.rotary_theta or self.local_rotary_theta
        parameters = self.parameters
        faults = {
            f"{heads} heads do not share {self.num_kv_heads} evenly": heads % self.num_kv_heads,
            f"heads of {self.head_size} are odd; rotary ones must be even": rotates and self.head_size % 2,
            f"pad_token_id {self.pad_token_id} is not a token ID": not 0 <= self.pad_token_id < self.vocab_size,
            f"{self.experts_taken} of {self.experts} experts are taken": not 0 <= self.experts_taken <= self.experts,
            f"{self.max_positions} positions leave none after an offset of the padding id": self.longest_input < 1,
            f"{self.layer_groups} groups for {self.num_layers} layers": self.layer_groups > self.num_layers,
            f"{parameters:.1e} parameters are more than are read": parameters > _MAX_PARAMETERS,
        }
        for fault, there in faults.items():
            if there:
                raise ModelError(f"{fault}.")

    @property
    def attention(self) -> tuple[Attention, ...]:
        """The attention of each layer."""
        everywhere = Attention(None, self.rotary_theta, self.rotary_scaling, self.causal)
        nearby = Attention(self.local_window, self.local_rotary_theta, self.local_rotary_scaling, self.causal)
        return tuple(nearby if layer in self.local_layers else everywhere for layer in range(self.num_layers))

    @property
    def layer_flops(self) -> int:
        """Floating-point operations per token in the dense products of an average layer, without attention itself."""
        heads = (self.num_heads + self.num_kv_heads) * self.head_size
        inner = self.num_layers + (self.experts - 1) * len(self.expert_layers)
        return 2 * self.hidden_size * (2 * heads + (2 + self.gated) * self.intermediate_size * inner // self.num_layers)

    @property
    def longest_input(self) -> int:
        """Maximum input length in tokens: a model without position embeddings has no limit but that of this library."""
        return self.max_positions - self.position_offset if self.learned_positions else MOST_POSITIONS

    @property
    def parameters(self) -> int:
        """Number of parameters, without layer norms and biases."""
        rows = self.vocab_size + self.type_vocab_size + self.max_positions * self.learned_positions
        embeddings = (rows + self.hidden_size * self.embedding_projection) * self.embedding_size
        return embeddings + (self.layer_groups or self.num_layers) * self.layer_flops // 2


def typed(value: object, kind: type[Any], key: str, least: int | float | None = None) -> Any:
    """The value of a key of `config.json` after a check of its type, as a float if `kind` is float."""
    if type(value) is not kind:
        value = io.from_json(kind, value, key, "Check config.json.", ModelError)
    if least is not None:
        Bounds(least).check(key, value, ModelError)
    return value


def read_fields(
    raw: Fields, keys: Mapping[str, str | tuple[str, ...]], defaults: Fields, kind: type[Any] = EncoderConfig
) -> Json:
    """Fields of a dataclass from a parsed `config.json`, by the `keys` of each and by `defaults`.

    Fields that are neither in the file nor in `defaults` are omitted.
    """
    fields = dict(defaults)
    hints = typing.get_type_hints(kind)
    for name, alternatives in keys.items():
        if isinstance(alternatives, str):
            alternatives = (alternatives,)
        key = next((key for key in alternatives if raw.get(key) is not None), None)
        if key is not None:
            fields[name] = typed(raw[key], hints[name], key)
        elif kind.__dataclass_fields__[name].default is dataclasses.MISSING and name not in defaults:
            raise ModelError(f"the key {alternatives[0]!r} is missing; is this the config.json of an encoder?")
    return fields


def check_supported(raw: Fields, supported: Fields) -> None:
    """Raises ModelError for a key of a `config.json` that is neither null nor the only supported value."""
    for key, value in supported.items():
        if raw.get(key) is not None and raw[key] != value:
            raise ModelError(f"{key} is {raw[key]!r}; only {value!r} is supported.")


# values in `layer_types`
FULL = "full_attention"
LOCAL = "sliding_attention"


_LINEAR = {"factor": "factor"}
_YARN = _LINEAR | {
    "original": "original_max_position_embeddings",
    "fast": "beta_fast",
    "slow": "beta_slow",
    "attention": "attention_factor",
    "growth": "llama_4_scaling_beta",
}


class Rope(NamedTuple):
    """How files specify rotary positions: in `rope_parameters`, or older ones in `rope_scaling` and a key of the base.

    The older `rope_scaling` is not for local layers.
    """

    older: str  # key of the base in older files
    theta: float  # the base where a file has none
    types: tuple[str, ...] = ("default",)  # the scalings that are supported
    kind: str = ""  # the entry of `rope_parameters` to read, if there is one for each kind of layers
    default: Fields | None = None  # `rope_parameters` of files without

    def read(self, raw: Fields) -> tuple[float, RotaryScaling | None]:
        """The base of the rotary position embedding and its scaling."""
        parameters = raw.get("rope_parameters") or self.default or {}
        older = (self.kind != LOCAL and raw.get("rope_scaling")) or {}
        name = None
        if self.kind and isinstance(parameters, Mapping):
            parameters = parameters.get(self.kind) or {}
        if isinstance(parameters, Mapping) and isinstance(older, Mapping):
            said = older or {"type": "default", **parameters}
            name = said.get("rope_type", said.get("type"))
            parameters = {**parameters, **older}
        if name not in self.types:
            raise ModelError(
                f"rope_parameters or rope_scaling has {parameters!r:.80}; supported types: {', '.join(self.types)}."
            )
        value = next((v for v in (parameters.get("rope_theta"), raw.get(self.older)) if v is not None), self.theta)
        theta: float = typed(value, float, "rope_theta")
        Bounds(float(name == "yarn"), _MOST_THETA, above=True, below=True).check("rope_theta", theta, ModelError)
        if name == "default":
            return theta, None
        if name != "yarn":
            return theta, RotaryScaling(**read_fields(parameters, _LINEAR, {"original": 0}, RotaryScaling))
        check_supported(parameters, {"truncate": True})
        fields = read_fields(parameters, _YARN, {}, RotaryScaling)
        scale, of_all = (typed(parameters.get(key) or 0.0, float, key, 0.0) for key in ("mscale", "mscale_all_dim"))
        grown = 0.1 * math.log(max(fields["factor"], 1.0))
        usual = (grown * scale + 1) / (grown * of_all + 1) if scale and of_all else grown + 1
        return theta, RotaryScaling(**{"attention": usual, **fields})


def rotary_keys(config: EncoderConfig, kinds: int) -> Json:
    """The inverse of `Rope.read`: the key `rope_parameters`, and with several kinds of layers `layer_types`."""
    full = _rotary_json(config.rotary_theta, config.rotary_scaling)
    if kinds == 1:
        return {"rope_parameters": full}
    local = _rotary_json(config.local_rotary_theta, config.local_rotary_scaling)
    return {"layer_types": layer_types(config), "rope_parameters": {FULL: full, LOCAL: local}}


def _rotary_json(theta: float, scaling: RotaryScaling | None) -> Json:
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    name, keys = ("yarn", _YARN) if scaling.original else ("linear", _LINEAR)
    values = {key: getattr(scaling, field) for field, key in keys.items()}
    return {"rope_type": name, "rope_theta": theta, **{key: value for key, value in values.items() if value}}


def read_local_layers(
    raw: Fields, num_layers: int, is_local: Callable[[int], bool] = lambda _: False
) -> tuple[int, ...]:
    """The layers with local attention, from `layer_types`, or by a rule on layer numbers if the key is missing."""
    kinds = raw.get("layer_types")
    if kinds is None:
        return tuple(filter(is_local, range(min(num_layers, MAX_LAYERS))))
    known = isinstance(kinds, list) and all(kind in (FULL, LOCAL) for kind in kinds)
    if not known or len(kinds) != num_layers:
        raise ModelError(f"layer_types is {kinds!r:.80}; expected {num_layers} times {FULL!r} or {LOCAL!r}.")
    return tuple(layer for layer, kind in enumerate(kinds) if kind == LOCAL)


def layer_types(config: EncoderConfig) -> list[str]:
    """The inverse of `read_local_layers`."""
    return [LOCAL if layer in config.local_layers else FULL for layer in range(config.num_layers)]
