"""The configuration that all encoders share, and functions that read its fields from a Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from jaxwhiten.errors import Bounds, ModelError
from jaxwhiten.options import bounded, check_bounds
from jaxwhiten.types import Fields, Json

MAX_LAYERS = 512
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")  # in `layers`
MOST_POSITIONS = 1 << 20
_MOST_THETA = 1e30
_MOST_FACTOR = 1e6
_MAX_PARAMETERS = 40_000_000_000


class RotaryScaling(NamedTuple):
    """How rotary positions are stretched beyond the input lengths of the pretraining.

    References:
      Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", sections 3.2 and 3.4.
    """

    factor: float  # divisor of the angles
    original: int = 0  # the longest input of the pretraining, for YaRN; 0 divides all angles alike
    fast: float = 32.0  # turns within `original` above which YaRN keeps a frequency
    slow: float = 1.0  # turns below which YaRN divides a frequency
    attention: float = 1.0  # factor of the rotated queries and keys
    growth: float = 0.0  # queries are multiplied by 1 + growth · ln(1 + ⌊position / original⌋)


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
        heads = self.num_heads
        if not self.head_size and self.hidden_size % heads:
            raise ModelError(f"hidden_size {self.hidden_size} is not a multiple of num_heads {heads}.")
        usual = {"embedding_size": self.hidden_size, "head_size": self.hidden_size // heads, "num_kv_heads": heads}
        for name, value in usual.items():
            object.__setattr__(self, name, getattr(self, name) or value)
        if self.embedding_size != self.hidden_size:
            object.__setattr__(self, "embedding_projection", True)
        rotates = self.rotary_theta or self.local_rotary_theta
        faults = {
            f"{heads} heads do not share {self.num_kv_heads} evenly": heads % self.num_kv_heads,
            f"heads of {self.head_size} are odd; rotary ones must be even": rotates and self.head_size % 2,
            f"pad_token_id {self.pad_token_id} is not a token ID": not 0 <= self.pad_token_id < self.vocab_size,
            f"{self.experts_taken} of {self.experts} experts are taken": not 0 <= self.experts_taken <= self.experts,
            f"{self.max_positions} positions leave none after an offset of the padding id": self.longest_input < 1,
            f"{self.layer_groups} groups for {self.num_layers} layers": self.layer_groups > self.num_layers,
            f"{self.parameters:.1e} parameters are more than are read": self.parameters > _MAX_PARAMETERS,
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


_JSON_TYPES: dict[str, Any] = {"int": int, "float": (int, float), "str": str, "bool": bool}
_FIELDS = {field.name: field for field in dataclasses.fields(EncoderConfig)}


def typed(value: object, kind: str, key: str, least: int | None = None) -> Any:
    """The value of a key of `config.json` after a check of its type, as a float if `kind` is `"float"`."""
    if not isinstance(value, _JSON_TYPES[kind]) or isinstance(value, bool) != (kind == "bool"):
        raise ModelError(f"{key} is {value!r}; expected a value of type {kind}.")
    if least is not None:
        Bounds(least).check(key, value, ModelError)
    if kind != "float":
        return value
    try:
        return float(value)
    except OverflowError:
        raise ModelError(f"{key} is a whole number too large for a float.") from None


def read_fields(raw: Fields, keys: Mapping[str, str | tuple[str, ...]], defaults: Fields) -> Json:
    """`EncoderConfig` fields from a parsed `config.json`, by a family's `keys` and `defaults`.

    Fields that are neither in the file nor in `defaults` are omitted.
    """
    fields = dict(defaults)
    for name, alternatives in keys.items():
        if isinstance(alternatives, str):
            alternatives = (alternatives,)
        key = next((key for key in alternatives if raw.get(key) is not None), None)
        if key is not None:
            fields[name] = typed(raw[key], str(_FIELDS[name].type), key)
        elif _FIELDS[name].default is dataclasses.MISSING and name not in defaults:
            raise ModelError(f"the key {alternatives[0]!r} is missing; is this the config.json of an encoder?")
    return fields


def check_supported(raw: Fields, supported: Fields) -> None:
    """Raises ModelError for a key of a `config.json` that is neither null nor the only supported value."""
    for key, value in supported.items():
        if raw.get(key) is not None and raw[key] != value:
            raise ModelError(f"{key} is {raw[key]!r}; only {value!r} is supported.")


def read_rotary(
    raw: Fields,
    kind: str | None,
    older_key: str,
    default: float,
    types: Collection[str] = ("default",),
    prefix: str = "",
) -> Json:
    """The base of a rotary position embedding and its scaling, from `rope_parameters` or the keys of older files.

    `kind` is the entry of `rope_parameters` to read, or None if it is not nested. `types` are the accepted scalings.
    `prefix` is put before the names of the two fields.
    """
    parameters = raw.get("rope_parameters") or {}
    older = raw.get("rope_scaling") or {}
    if kind is not None and isinstance(parameters, Mapping):
        parameters = parameters.get(kind) or {}
    if isinstance(parameters, Mapping) and isinstance(older, Mapping):
        said = older or parameters
        parameters = {**parameters, **older}
        name = said.get("rope_type", said.get("type", None if older else "default"))
    else:
        name = None
    if name not in types:
        raise ModelError(
            f"rope_parameters or rope_scaling has {parameters!r:.80}; supported types: {', '.join(types)}."
        )
    value = next((v for v in (parameters.get("rope_theta"), raw.get(older_key)) if v is not None), default)
    theta: float = typed(value, "float", "rope_theta")
    Bounds(float(name == "yarn"), _MOST_THETA, above=True, below=True).check("rope_theta", theta, ModelError)
    scaling = None if name == "default" else _read_scaling(parameters, name == "yarn")
    return {f"{prefix}rotary_theta": theta, f"{prefix}rotary_scaling": scaling}


def _read_scaling(parameters: Fields, yarn: bool) -> RotaryScaling:
    def number(key: str, default: float = 0.0) -> float:
        value = parameters.get(key)
        scaling: float = typed(default if value is None else value, "float", key)
        Bounds(0.0).check(key, scaling, ModelError)
        return scaling

    factor = number("factor")
    Bounds(1.0, _MOST_FACTOR).check("factor", factor, ModelError)
    if not yarn:
        return RotaryScaling(factor)
    check_supported(parameters, {"truncate": True})
    scale = number("mscale")
    of_all = number("mscale_all_dim")
    grown = 0.1 * math.log(factor)
    attention = (grown * scale + 1) / (grown * of_all + 1) if scale and of_all else grown + 1
    original = typed(parameters.get(key := "original_max_position_embeddings"), "int", key)
    Bounds(1, (1 << 31) - 1).check(key, original, ModelError)
    return RotaryScaling(
        factor,
        original,
        fast=number("beta_fast") or 32.0,
        slow=number("beta_slow") or 1.0,
        attention=number("attention_factor", attention),
        growth=number("llama_4_scaling_beta"),
    )


def write_rotary(config: EncoderConfig) -> Json:
    """The inverse of `read_rotary` for one kind of layers: the key `rope_parameters`."""
    return {"rope_parameters": rotary_json(config.rotary_theta, config.rotary_scaling)}


def write_kinds(config: EncoderConfig) -> Json:
    """The key `layer_types`, and `rope_parameters` for both kinds of layers."""
    full = rotary_json(config.rotary_theta, config.rotary_scaling)
    local = rotary_json(config.local_rotary_theta, config.local_rotary_scaling)
    return {"layer_types": layer_types(config), "rope_parameters": {FULL: full, LOCAL: local}}


def rotary_json(theta: float, scaling: RotaryScaling | None = None) -> Json:
    """The value of `rope_parameters` for layers of one kind."""
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    linear = {"rope_type": "linear", "rope_theta": theta, "factor": scaling.factor}
    if not scaling.original:
        return linear
    return {
        **linear,
        "rope_type": "yarn",
        "original_max_position_embeddings": scaling.original,
        "beta_fast": scaling.fast,
        "beta_slow": scaling.slow,
        "attention_factor": scaling.attention,
        **({"llama_4_scaling_beta": scaling.growth} if scaling.growth else {}),
    }


# values in `layer_types`
FULL = "full_attention"
LOCAL = "sliding_attention"


def read_local_layers(
    raw: Fields, num_layers: int, is_local: Callable[[int], bool] = lambda _: False
) -> tuple[int, ...]:
    """The layers with local attention, from `layer_types`, or by a rule on layer numbers if the key is missing."""
    kinds = raw.get("layer_types")
    if kinds is None:
        return tuple(filter(is_local, range(min(num_layers, MAX_LAYERS))))
    if not isinstance(kinds, list) or not all(kind in (FULL, LOCAL) for kind in kinds):
        raise ModelError(f"layer_types is {kinds!r:.80}; expected a list of {FULL!r} and {LOCAL!r}.")
    if len(kinds) != num_layers:
        raise ModelError(f"layer_types has {len(kinds)} layers; expected {num_layers}, as in num_hidden_layers.")
    return tuple(layer for layer, kind in enumerate(kinds) if kind == LOCAL)


def layer_types(config: EncoderConfig) -> list[str]:
    """The inverse of `read_local_layers`."""
    return [LOCAL if layer in config.local_layers else FULL for layer in range(config.num_layers)]
