"""What a sentence-transformers folder does after its Transformer: layers mixed, tokens pooled, vectors mapped.

The folder's `modules.json` lists modules; those read here are Transformer, WeightedLayerPooling, Pooling, Dense,
Normalize and Dropout (which does nothing when encoding).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxwhiten.errors import ModelError
from jaxwhiten.head.pooling import AUTO, POOLINGS, Mask, Pooled, Tokens, masked_mean
from jaxwhiten.models import EncoderConfig, EncoderOutput, checkpoint, loading
from jaxwhiten.text.tokenization import PLAIN, TextForm

_PRECISION = jax.lax.Precision.HIGHEST


def _mean_sqrt_len(output: EncoderOutput, mask: Mask) -> Pooled:
    count = jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1).astype(jnp.float32)
    return masked_mean(output.hidden_states[-1], mask) * jnp.sqrt(count)


def _position_weighted(output: EncoderOutput, mask: Mask) -> Pooled:
    weights = (mask * jnp.arange(1, mask.shape[1] + 1)).astype(jnp.float32)
    total = jnp.sum(output.hidden_states[-1].astype(jnp.float32) * weights[:, :, None], axis=1)
    return total / jnp.maximum(jnp.sum(weights, axis=1, keepdims=True), 1.0)


def _last_token(output: EncoderOutput, mask: Mask) -> Pooled:
    place = jnp.maximum(jnp.sum(mask, axis=1) - 1, 0)
    return jnp.take_along_axis(output.hidden_states[-1], place[:, None, None], axis=1)[:, 0].astype(jnp.float32)


# Modes of the Pooling module, in the order in which several are concatenated, and their keys in older folders.
MODES: dict[str, Callable[[EncoderOutput, Mask], Pooled]] = {
    "cls": POOLINGS["cls"],
    "max": POOLINGS["max"],
    "mean": POOLINGS["mean"],
    "mean_sqrt_len_tokens": _mean_sqrt_len,
    "weightedmean": _position_weighted,
    "lasttoken": _last_token,
}
_OLDER_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "GELU": lambda x: jax.nn.gelu(x, approximate=False),
    "SiLU": jax.nn.silu,
    "Sigmoid": jax.nn.sigmoid,
}


class LayerMix(nnx.Module):
    """Weighted mean of the hidden states from one layer on (WeightedLayerPooling)."""

    def __init__(self, weights: Float[Array, " layers"], first: int):
        self.weights = nnx.Param(weights)
        self.first = first

    def __call__(self, output: EncoderOutput) -> Float[Array, "batch length d"]:
        states = jnp.stack(output.hidden_states[self.first :]).astype(jnp.float32)
        weights = self.weights[...]
        return jnp.einsum("l,lbtd->btd", weights, states, precision=_PRECISION) / jnp.sum(weights)


class Dense(nnx.Module):
    """A dense layer with an activation, and a residual where the folder has one."""

    def __init__(self, tensors: Mapping[str, Array], activation: str, residual: bool):
        self.kernel = nnx.Param(tensors["linear.weight"])
        self.bias = nnx.Param(tensors["linear.bias"]) if "linear.bias" in tensors else None
        self.residual_kernel = nnx.Param(tensors["residual.weight"]) if "residual.weight" in tensors else None
        self.activation = activation
        self.residual = residual

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        y = jnp.matmul(x, self.kernel[...].T, precision=_PRECISION)
        y = ACTIVATIONS[self.activation](y if self.bias is None else y + self.bias[...])
        if not self.residual:
            return y
        if self.residual_kernel is None:
            return y + x
        return y + jnp.matmul(x, self.residual_kernel[...].T, precision=_PRECISION)


class Normalize(nnx.Module):
    """Rows scaled to unit length."""

    def __call__(self, x: Float[Array, "batch d"]) -> Float[Array, "batch d"]:
        return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


class SentenceHead(nnx.Module):
    """From what the encoder returned to a sentence's vector, as a sentence-transformers folder says.

    Args:
      mix: How token vectors are made of all layers; None for the last layer's.
      modes: Names of `MODES`; several are concatenated.
      steps: What is done to the pooled vectors.
      form: How sentences are written before they are tokenised.
      width: Of the resulting vectors.
      max_length: Longest sentence in tokens that the folder asks for, or None.

    Attributes:
      summary: What the head does, in words that differ for heads that differ in more than weights.
    """

    def __init__(
        self,
        mix: LayerMix | None,
        modes: tuple[str, ...],
        steps: list[nnx.Module],
        form: TextForm,
        width: int,
        max_length: int | None,
    ):
        self.mix = mix
        self.modes = modes
        self.steps = nnx.List(steps)
        self.form = form
        self.width = width
        self.max_length = max_length
        parts = [f"layers {mix.first} on"] if mix else []
        parts += ["+".join(modes), *map(_described, steps), *([repr(form)] if form != PLAIN else [])]
        self.summary = " > ".join(parts)

    def __call__(self, output: EncoderOutput, tokens: Tokens) -> Float[Array, "batch width"]:
        if self.mix is not None:
            output = EncoderOutput((self.mix(output),), None)
        x = jnp.concatenate([MODES[mode](output, tokens.mask) for mode in self.modes], axis=-1)
        for step in self.steps:
            x = step(x)
        return x


def _described(step: nnx.Module) -> str:
    if isinstance(step, Dense):
        return f"Dense {step.activation}{' + residual' if step.residual else ''}"
    return type(step).__name__


class _Listed(NamedTuple):
    kind: str
    folder: Path


def load_head(folder: Path, config: EncoderConfig) -> SentenceHead:
    """Reads what a sentence-transformers folder does after its Transformer.

    Args:
      folder: Holds `modules.json`, or at least `1_Pooling/config.json`.
      config: The Transformer's.

    Raises:
      ModelError: No such files; a module, mode or activation that is not supported, by name; missing weights.
    """
    listed = _listed(folder)
    kinds = [kind for kind, _ in listed]
    where = folder / "modules.json"
    if kinds[:1] != ["Transformer"] or kinds.count("Pooling") != 1:
        raise ModelError(f"{where}: lists {', '.join(kinds)}; expected one Transformer, then one Pooling.")
    mix: LayerMix | None = None
    modes: tuple[str, ...] = ()
    steps: list[nnx.Module] = []
    width = config.hidden_size
    for kind, place in listed[1:]:
        if kind == "WeightedLayerPooling" and not modes and mix is None:
            mix = _layer_mix(place, loading.transformer_folder(folder), config)
        elif kind == "Pooling":
            modes = _modes(place / "config.json", width)
            width *= len(modes)
        elif kind == "Dense" and modes:
            step = _dense(place, width)
            width = step.kernel.shape[0]
            steps.append(step)
        elif kind == "Normalize" and modes:
            _check_names(place / "config.json", _optional_json(place / "config.json"))
            steps.append(Normalize())
        elif kind != "Dropout":
            raise ModelError(f"{where}: {kind} is in a place where it is not supported, after {kinds}.")
    form, max_length = _text_form(folder, listed)
    return SentenceHead(mix, modes, steps, form, width, max_length)


def plain_pooling(head: SentenceHead) -> str | None:
    """The name of the pooling that a head amounts to, or None if it does more."""
    more = head.mix is not None or len(head.steps) or head.form != PLAIN or len(head.modes) > 1
    return head.modes[0] if not more and head.modes[0] in POOLINGS else None


def resolve_auto(
    folder: Path, config: EncoderConfig, pooling: str, max_length: int | None
) -> tuple[str, SentenceHead | None, int | None]:
    """What `"auto"` stands for in a folder: a plain pooling by its name, or `"auto"` with its head.

    Args:
      folder: A sentence-transformers folder, where the pooling is `"auto"`.
      config: The encoder's.
      pooling: A canonical name; any other than `"auto"` is returned as it is.
      max_length: As asked for, or None for what the folder says.

    Returns:
      The pooling, its head or None, and the longest sentence in tokens or None.
    """
    if pooling != AUTO:
        return pooling, None, max_length
    head = load_head(folder, config)
    if max_length is None:
        max_length = min(head.max_length or config.longest_input, config.longest_input)
    plain = plain_pooling(head)
    return (AUTO, head, max_length) if plain is None else (plain, None, max_length)


_LONGEST_NAME = 60  # in characters, of at most four bytes; file systems take 255
_SUPPORTED = ("Transformer", "WeightedLayerPooling", "Pooling", "Dense", "Normalize", "Dropout")


def _listed(folder: Path) -> list[_Listed]:
    file = folder / "modules.json"
    if not file.is_file():
        if not (folder / "1_Pooling" / "config.json").is_file():
            raise ModelError(f"{folder}: no modules.json, so pooling='auto' has no answer; name a pooling.")
        return [_Listed("Transformer", folder), _Listed("Pooling", folder / "1_Pooling")]
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        named = [(str(row["type"]), str(row["path"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{file}: not a readable list of modules ({error}).") from error
    for kind, path in named:
        package, _, name = kind.rpartition(".")
        if package.split(".")[0] != "sentence_transformers" or name not in _SUPPORTED:
            raise ModelError(f"{file}: module {kind!r} is not supported. Supported: {', '.join(_SUPPORTED)}.")
        if path and (Path(path).name != path or len(path) > _LONGEST_NAME or "\0" in path):
            raise ModelError(f"{file}: module path {path!r:.80} is no name of a folder in this one.")
    return [_Listed(kind.rpartition(".")[2], folder / path) for kind, path in named]


def _modes(file: Path, width: int) -> tuple[str, ...]:
    raw = loading.read_json(file)
    found = raw.get("pooling_mode")
    if found is None:
        found = [mode for key, mode in _OLDER_MODES.items() if raw.get(key)] or ["mean"]
    modes = (found,) if isinstance(found, str) else tuple(map(str, found)) if isinstance(found, list) else ()
    if not modes or not set(modes) <= MODES.keys():
        raise ModelError(f"{file}: asks for pooling {found!r}; supported: {', '.join(MODES)}.")
    declared = raw.get("embedding_dimension", raw.get("word_embedding_dimension", width))
    if declared != width:
        raise ModelError(f"{file}: pools vectors of {declared!r}, the Transformer gives {width}.")
    return modes


def _layer_mix(place: Path, transformer: Path, config: EncoderConfig) -> LayerMix | None:
    """The weights of the layers; None where the Transformer's config.json does not hand out its hidden states,
    because then sentence-transformers takes the last layer."""
    if loading.read_json(transformer / "config.json").get("output_hidden_states") is not True:
        return None
    file = place / "config.json"
    first = loading.read_json(file).get("layer_start", 4)
    if not isinstance(first, int) or not 0 <= first <= config.num_layers:
        raise ModelError(f"{file}: layer_start is {first!r}; this model has hidden states 0 to {config.num_layers}.")
    tensors, where = checkpoint.open_weights(place)
    weights = checkpoint.read_tensor(tensors, "layer_weights", (config.num_layers + 1 - first,), where)
    return LayerMix(jnp.asarray(weights), first)


def _dense(place: Path, width: int) -> Dense:
    file = place / "config.json"
    raw = loading.read_json(file)
    _check_names(file, raw)
    inputs, outputs = raw.get("in_features"), raw.get("out_features")
    if inputs != width or not isinstance(outputs, int):
        raise ModelError(f"{file}: maps {inputs!r} to {outputs!r} features; what comes before has {width}.")
    activation = str(raw.get("activation_function", "torch.nn.modules.activation.Tanh"))
    package, _, name = activation.rpartition(".")
    if package.split(".")[0] != "torch" or name not in ACTIVATIONS:
        raise ModelError(f"{file}: activation {activation!r} is not supported. Supported: {', '.join(ACTIVATIONS)}.")
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, width)}
    if raw.get("bias", True):
        shapes["linear.bias"] = (outputs,)
    if raw.get("use_residual") and outputs != width:
        shapes["residual.weight"] = (outputs, width)
    tensors, where = checkpoint.open_weights(place)
    arrays = {name: jnp.asarray(checkpoint.read_tensor(tensors, name, shape, where)) for name, shape in shapes.items()}
    return Dense(arrays, name, bool(raw.get("use_residual")))


def _check_names(file: Path, raw: Mapping[str, Any]) -> None:
    for key in ("module_input_name", "module_output_name"):
        if raw.get(key) not in (None, "sentence_embedding"):
            raise ModelError(f"{file}: {key} is {raw[key]!r}; only 'sentence_embedding' is supported.")


def _optional_json(file: Path) -> dict[str, Any]:
    return loading.read_json(file) if file.is_file() else {}


def _text_form(folder: Path, listed: list[_Listed]) -> tuple[TextForm, int | None]:
    """The default prompt before every sentence, lower-casing, and the longest sentence."""
    settings = _optional_json(folder / "config_sentence_transformers.json")
    of_transformer = _optional_json(listed[0].folder / "sentence_bert_config.json")
    lower_case, max_length = bool(of_transformer.get("do_lower_case")), of_transformer.get("max_seq_length")
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    text = str(prompts.get(name) or "") if isinstance(name, str) and isinstance(prompts, Mapping) else ""
    pooling = next(place for kind, place in listed if kind == "Pooling")
    if text and loading.read_json(pooling / "config.json").get("include_prompt") is False:
        raise ModelError(f"{pooling / 'config.json'}: include_prompt is false, which is not supported.")
    template = (text.lower() if lower_case else text) + "{text}"
    return TextForm(template, lower_case), max_length if isinstance(max_length, int) else None
