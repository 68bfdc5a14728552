"""From hidden states to one float32 vector per sentence: a mix of them, and one class per pooling.

The mask includes [CLS] and [SEP], but no padding.

References:
  Reimers & Gurevych 2019, "Sentence-BERT", section 3 (cls, mean, max).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head.steps import Found, States, StateStep, Step, StepModule, Target, array, step
from jaxwhiten.models import EncoderConfig, checkpoint, folders
from jaxwhiten.text import PLAIN, TextForm
from jaxwhiten.types import AnyArray, Bool, Float, Int, Json, OnnxGraph

Pooled = Float[Any, "*batch d"]
HiddenState = Float[Any, "rows length d"]


_OF_LAYERS = ("embedding_dimension", "word_embedding_dimension", "layer_start", "num_hidden_layers")


@step
class LayerMix(StateStep):
    """Weighted mean of hidden states (WeightedLayerPooling); layer 0 is the embedding output, -1 the last layer.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> encoder.encode("A dog runs.", pooling="layers:0+2").shape
    (256,)
    """

    layers: tuple[int, ...]
    weights: AnyArray = array()

    kinds = ("WeightedLayerPooling",)
    segmented = True

    def __call__(self, states: States) -> States:
        shares = self.weights / self.weights.sum()
        return dataclasses.replace(states, mix=tuple((layer, shares[i]) for i, layer in enumerate(self.layers)))

    def check(self, config: EncoderConfig) -> None:
        size = config.num_layers + 1
        for layer in self.layers:
            if not -size <= layer < size:
                raise InputError(
                    f"There is no hidden state {layer}; this model has hidden states 0 to {config.num_layers}."
                )

    def by_layer(self, last: int) -> dict[int, float]:
        """The weight of each hidden state, counted from 0; empty for the last one alone."""
        weights: dict[int, float] = {}
        for layer, weight in zip(self.layers, np.asarray(self.weights).tolist(), strict=True):
            place = layer % (last + 1)
            weights[place] = weights.get(place, 0.0) + weight
        if set(weights) == {last}:
            return {}
        return dict(sorted(weights.items()))

    def to_folder(self, target: Target) -> list[StepModule]:
        last = target.config.num_layers
        weights = self.by_layer(last)
        if not weights:
            return []
        first = min(weights)
        values = np.array([weights.get(i, 0.0) for i in range(first, last + 1)], np.float32)
        config = {"word_embedding_dimension": target.width, "layer_start": first, "num_hidden_layers": last}
        # By default sentence-transformers' Transformer returns the last hidden state only, and that would be pooled.
        return [StepModule("WeightedLayerPooling", config, {"layer_weights": values}, {"output_hidden_states": True})]

    @classmethod
    def from_folder(cls, found: Found) -> Step | None:
        if folders.config_json(found.transformer).get("output_hidden_states") is not True:
            return None  # sentence-transformers then takes the last layer
        first = found.read(*_OF_LAYERS).get("layer_start", 4)
        last = found.config.num_layers
        if not isinstance(first, int) or not 0 <= first <= last:
            raise ModelError(f"{found.file}: layer_start is {first!r}; this model has hidden states 0 to {last}.")
        tensors, where = checkpoint.open_weights(found.folder)
        weights = np.asarray(checkpoint.read_tensor(tensors, "layer_weights", (last + 1 - first,), where))
        layers = np.flatnonzero(weights)
        return cls(tuple(int(first + i) for i in layers), weights[layers].astype(np.float32))

    def to_onnx(self, graph: OnnxGraph, x: States) -> States:
        return self(x)

    def words(self) -> str:
        return f"layers {'+'.join(map(str, self.layers))}"


class Pooling(Step):
    """The step from `States` to vectors. A subclass pools one hidden state: [batch, length, d] to [batch, d].

    A `segmented` subclass also pools [rows, length, d] to [rows, sentences, d], by `States.segments`.

    >>> Mean().modes
    ('mean',)
    """

    instead = "; use a pooling such as 'mean', 'cls' or 'first_last_avg'"
    mode: ClassVar[str | None] = None  # the equivalent mode of sentence-transformers' Pooling module

    def pool(self, x: HiddenState, states: States) -> Pooled:
        raise NotImplementedError

    def __call__(self, states: States) -> Pooled:
        # Pooling is linear, so each layer is pooled alone: XLA then pools each layer once for all mixes that share it.
        pooled = [(share, self.pool(states.output.hidden_states[layer], states)) for layer, share in states.mix]
        if len(pooled) == 1:
            return pooled[0][1]
        total: Pooled = sum(share * vectors for share, vectors in pooled)
        return total

    @property
    def form(self) -> TextForm:
        """How sentences are written before they are tokenized. Each form needs its own forward pass."""
        return PLAIN

    @property
    def modes(self) -> tuple[str, ...]:
        """Equivalent modes of sentence-transformers' Pooling module; empty if there are none."""
        if self.mode is None:
            return ()
        return (self.mode,)

    def to_folder(self, target: Target) -> list[StepModule]:
        if not self.modes:
            return super().to_folder(target)
        config: Json = {"word_embedding_dimension": target.config.hidden_size}
        if list(self.modes) == [mode for mode in MODES if mode in self.modes]:  # old and new versions read these keys
            config |= {key: mode in self.modes for mode, key in _OLDER_KEYS.items()}
        else:
            config["pooling_mode"] = list(self.modes)
        return [StepModule("Pooling", config)]

    def words(self) -> str:
        return self.mode or super().words()


def _weighted_sum(x: HiddenState, weights: Float[AnyArray, "*batch length"]) -> Pooled:
    x = x.astype(np.float32)
    if weights.ndim == 3:  # several sentences in a row
        return x.__array_namespace__().einsum("rsl,rld->rsd", weights, x, precision="highest")
    return (x * weights[:, :, None]).sum(axis=1)


def _token(x: HiddenState, place: Int[AnyArray, "*batch"]) -> Pooled:
    """The tokens at the given positions of their rows."""
    states = x.__array_namespace__().take_along_axis(x, place.reshape(len(place), -1, 1), axis=1)
    return states.reshape(*place.shape, x.shape[-1]).astype(np.float32)


def _onnx_sum(graph: OnnxGraph, x: str, weights: str) -> str:
    """`_weighted_sum` as operators of a graph."""
    column = graph.op("Unsqueeze", weights, graph.integers(2))
    return graph.op("ReduceSum", graph.op("Mul", x, column), graph.integers(1), keepdims=0)


def _onnx_places(graph: OnnxGraph) -> str:
    """Positions of the tokens from 1, float32; padding has the position of the last token."""
    return graph.op("CumSum", graph.op("Cast", "attention_mask", to=1), graph.integers(1))


def _onnx_pooled(graph: OnnxGraph, x: States) -> str:
    """A mask of the tokens to pool, bool [batch, length]."""
    tokens = graph.op("Cast", "attention_mask", to=9)
    if not x.start:
        return tokens
    return graph.op("And", tokens, graph.op("Greater", _onnx_places(graph), graph.number(float(x.start))))


@step
class Cls(Pooling):
    """First token."""

    segmented = True
    mode = "cls"

    def pool(self, x: HiddenState, states: States) -> Pooled:
        if states.segments is None and not np.ndim(states.start):
            return x[:, states.start].astype(np.float32)
        return _token(x, states.place(states.start))

    def to_onnx(self, graph: OnnxGraph, x: States) -> str:
        return graph.op("Gather", x.mixed(graph), graph.constant(f"token.{x.start}", np.int64(x.start)), axis=1)


@step
class Max(Pooling):
    """Largest value of each column."""

    segmented = True
    mode = "max"

    def __call__(self, states: States) -> Pooled:
        hidden = states.output.hidden_states
        x: HiddenState = sum(share * hidden[layer].astype(np.float32) for layer, share in states.mix)
        pooled = (states.mask > 0) & (states.positions >= states.np.expand_dims(states.start, -1))

        def largest(pooled: Bool[AnyArray, "rows length"]) -> Float[AnyArray, "rows d"]:
            return states.np.where(pooled[:, :, None], x, np.finfo(np.float32).min).max(axis=1)

        if states.segments is None:
            return largest(pooled)
        import jax

        return jax.lax.map(largest, pooled.swapaxes(0, 1)).swapaxes(0, 1)

    def to_onnx(self, graph: OnnxGraph, x: States) -> str:
        mask = graph.op("Unsqueeze", _onnx_pooled(graph, x), graph.integers(2))
        kept = graph.op("Where", mask, x.mixed(graph), graph.constant("lowest", np.finfo(np.float32).min))
        return graph.op("ReduceMax", kept, axes=[1], keepdims=0)


class _Weighted(Pooling):
    """The weighted sum of the tokens divided by the sum of the weights; zeros if the weights sum to 0."""

    segmented = True
    by_position: ClassVar[bool] = False  # whether weights are multiplied by positions from 1
    root: ClassVar[bool] = False  # whether to divide by the square root of the sum of the weights

    def pool(self, x: HiddenState, states: States) -> Pooled:
        weights = states.weights * (states.positions + 1) if self.by_position else states.weights
        total = weights.sum(axis=-1, keepdims=True)
        if self.root:
            total = states.np.sqrt(total)
        return _weighted_sum(x, weights) / states.np.where(total > 0, total, 1.0)

    def to_onnx(self, graph: OnnxGraph, x: States) -> str:
        weights = graph.op("Mul", _onnx_places(graph), x.weights) if self.by_position else x.weights
        total = graph.op("ReduceSum", weights, graph.integers(1), keepdims=1)
        if self.root:
            total = graph.op("Sqrt", total)
        some = graph.op("Greater", total, graph.number(0.0))
        over = graph.op("Where", some, total, graph.number(1.0))
        return graph.op("Div", _onnx_sum(graph, x.mixed(graph), weights), over)


@step
class Mean(_Weighted):
    """Mean of the tokens, weighted by `States.weights`.

    >>> Mean().words()
    'mean'
    """

    mode = "mean"


@step
class MeanSqrtLen(_Weighted):
    """Sum of the tokens divided by the square root of their number."""

    mode = "mean_sqrt_len_tokens"
    root = True


@step
class WeightedMean(_Weighted):
    """Mean of the tokens, each weighted by its position from 1."""

    mode = "weightedmean"
    by_position = True


@step
class LastToken(Pooling):
    """Last token."""

    segmented = True
    mode = "lasttoken"

    def pool(self, x: HiddenState, states: States) -> Pooled:
        return _token(x, states.place((states.mask.sum(axis=-1) - 1).clip(0)))

    def to_onnx(self, graph: OnnxGraph, x: States) -> str:
        length = graph.op("ReduceSum", "attention_mask", graph.integers(1), keepdims=1)
        return graph.op("GatherND", x.mixed(graph), graph.op("Sub", length, graph.integers(1)), batch_dims=1)


@step
class Pooler(Pooling):
    """BERT's pooler output: a dense layer and tanh on the first token."""

    segmented = True

    def __call__(self, states: States) -> Pooled:
        return states.output.pooler.astype(np.float32)

    def check(self, config: EncoderConfig) -> None:
        if not config.pooler:
            raise ModelError("This model has no pooler: use a different pooling, such as 'cls' or 'mean'.")

    def to_onnx(self, graph: OnnxGraph, x: States) -> str:
        return x.output.pooler()


@step
class Concat(Pooling):
    """Concatenates the vectors of several poolings."""

    parts: tuple[Pooling, ...] = array()

    kinds = ("Pooling",)

    def __call__(self, states: States) -> Pooled:
        return states.np.concatenate([part(states) for part in self.parts], axis=-1)

    @property
    def segmented(self) -> bool:
        return all(part.segmented for part in self.parts)

    def output_width(self, width: int) -> int:
        return width * len(self.parts)

    @property
    def modes(self) -> tuple[str, ...]:
        modes = tuple(part.mode for part in self.parts if part.mode is not None)
        return modes if len(modes) == len(self.parts) else ()

    @classmethod
    def from_folder(cls, found: Found) -> Step | None:
        """The pooling of a folder: a `Concat`, or a single pooling if the folder has one mode."""
        raw = found.read(*_OF_POOLING)
        modes = raw.get("pooling_mode") or [mode for mode, key in _OLDER_KEYS.items() if raw.get(key)] or ["mean"]
        modes = [modes] if isinstance(modes, str) else modes
        if not isinstance(modes, list) or any(not isinstance(mode, str) or mode not in MODES for mode in modes):
            raise ModelError(f"{found.file}: pooling {modes!r} is not supported. Supported: {', '.join(MODES)}.")
        declared = raw.get("embedding_dimension", raw.get("word_embedding_dimension", found.width))
        if declared != found.width:
            raise ModelError(f"{found.file}: expected {found.width} dimensions, got {declared!r}.")
        parts = tuple(MODES[mode]() for mode in modes)
        pooling = parts[0] if len(parts) == 1 else cls(parts)
        return AfterPrompt(pooling, np.int32(0)) if raw.get("include_prompt") is False else pooling

    def to_onnx(self, graph: OnnxGraph, x: States) -> str:
        return graph.op("Concat", *(part.to_onnx(graph, x) for part in self.parts), axis=-1)

    def words(self) -> str:
        return "+".join(part.words() for part in self.parts)


@step
class AfterPrompt(Pooling):
    """Pools only the tokens after the prompt (`include_prompt: false`); without a prompt, all tokens.

    >>> AfterPrompt(Mean(), np.int32(3)).words()
    'mean behind the prompt'
    """

    pooling: AnyArray = array()
    length: AnyArray = array()  # tokens of the prompt, including [CLS]; one number, or [batch]

    def __call__(self, states: States) -> Pooled:
        behind = states.positions >= states.np.expand_dims(self.length, -1)
        return self.pooling(dataclasses.replace(states, start=self.length, weights=states.weights * behind))

    @property
    def segmented(self) -> bool:
        return bool(self.pooling.segmented)

    def output_width(self, width: int) -> int:
        return int(self.pooling.output_width(width))

    def to_folder(self, target: Target) -> list[StepModule]:
        (module,) = self.pooling.to_folder(target)
        return [dataclasses.replace(module, config={**module.config, "include_prompt": False})]

    def to_onnx(self, graph: OnnxGraph, x: States) -> str:
        here = dataclasses.replace(x, start=int(self.length))
        kept = graph.op("Cast", _onnx_pooled(graph, here), to=1)
        return self.pooling.to_onnx(graph, dataclasses.replace(here, weights=graph.op("Mul", x.weights, kept)))

    def words(self) -> str:
        return f"{self.pooling.words()} behind the prompt"


# In the order in which older folders concatenate them.
MODES: dict[str, type[Pooling]] = {
    str(pooling.mode): pooling for pooling in (Cls, Max, Mean, MeanSqrtLen, WeightedMean, LastToken)
}
_KEYS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_OLDER_KEYS = {mode: f"pooling_mode_{key}" for mode, key in zip(MODES, _KEYS, strict=True)}
_OF_POOLING = {"embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt"}
_OF_POOLING |= set(_OLDER_KEYS.values())

PLAIN_POOLINGS: dict[str, type[Pooling]] = {**MODES, "pooler": Pooler}
"""Poolings without parameters, by name."""
