"""Steps before the pooling: the mix of hidden states, and the weights of tokens."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxwhiten.errors import REASON, InputError, ModelError, turning
from jaxwhiten.head.steps import Found, Module, States, StateStep, Step, Target, array, step
from jaxwhiten.models import EncoderConfig, checkpoint, folders
from jaxwhiten.shapes import Float
from jaxwhiten.typing import AnyArray, OnnxGraph

_OF_LAYERS = ("embedding_dimension", "word_embedding_dimension", "layer_start", "num_hidden_layers")


@step
class LayerMix(StateStep):
    """Weighted mean of hidden states (WeightedLayerPooling); layer 0 is the embedding output, -1 the last layer.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> encoder.with_pooling("layers:0+2").encode("A dog runs.").shape
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

    def to_folder(self, target: Target) -> list[Module]:
        last = target.config.num_layers
        weights = self.by_layer(last)
        if not weights:
            return []
        first = min(weights)
        values = np.array([weights.get(i, 0.0) for i in range(first, last + 1)], np.float32)
        config = {"word_embedding_dimension": target.width, "layer_start": first, "num_hidden_layers": last}
        # By default sentence-transformers' Transformer returns the last hidden state only, and that would be pooled.
        return [Module("WeightedLayerPooling", config, {"layer_weights": values}, {"output_hidden_states": True})]

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


@step
class TokenWeights(StateStep):
    """Weights tokens by their ids (WordWeights). If all weights of a sentence are 0, all its tokens count alike.

    `weights` are float32 [vocab]; `table` names them, for instance by a hash.

    >>> TokenWeights(np.ones(30522, np.float32)).words()
    'weighted tokens'
    """

    weights: AnyArray = array()
    table: str = ""

    kinds = ("WordWeights",)
    segmented = True

    def __call__(self, states: States) -> States:
        if states.ids is None:
            raise InputError("Weights of tokens need the token ids.")
        weights = self.weights[states.ids] * states.weights
        some = weights.sum(axis=-1, keepdims=True) > 0
        return dataclasses.replace(states, weights=states.np.where(some, weights, states.weights))

    def to_folder(self, target: Target) -> list[Module]:
        # A small weight replaces 0, so that sentences-transformers averages a sentence of such tokens, too.
        weights = np.asarray(self.weights)
        return [word_weights_module(np.maximum(weights, 1e-6 * weights.max()), target.tokenizer.vocabulary)]

    @classmethod
    def from_folder(cls, found: Found) -> Step | None:
        raw = found.read("vocab", "word_weights", "unknown_word_weight")
        with turning(ModelError, f"{found.file}: not readable as weights of tokens ({REASON})."):
            named = dict(raw["word_weights"])
            unknown = float(raw.get("unknown_word_weight", 1))
            values = [named.get(token, named.get(token.lower(), unknown)) for token in raw["vocab"]]
            weights = np.asarray(values, np.float32)
        if len(weights) < found.config.vocab_size:  # the embedding has rows without a token
            weights = np.pad(weights, (0, found.config.vocab_size - len(weights)))
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ModelError(f"{found.file}: a weight of a token is below 0 or not finite.")
        return cls(weights)

    def to_onnx(self, graph: OnnxGraph, x: States) -> States:
        table = graph.constant("head.token_weights", np.asarray(self.weights, np.float32))
        weights = graph.op("Mul", graph.op("Gather", table, "input_ids"), x.weights)
        total = graph.op("ReduceSum", weights, graph.integers(1), keepdims=1)
        some = graph.op("Greater", total, graph.number(0.0))
        return dataclasses.replace(x, weights=graph.op("Where", some, weights, x.weights))

    def words(self) -> str:
        return "weighted tokens"


def word_weights_module(weights: Float[np.ndarray, " vocab"], vocabulary: list[str]) -> Module:
    """A WordWeights module for weights by token id. The embedding may have more rows than there are tokens."""
    tokens = [*vocabulary, *(f"[unused row {i}]" for i in range(len(vocabulary), len(weights)))]
    values, counts = np.unique(weights, return_counts=True)
    common = float(values[np.argmax(counts)])
    named = {token: float(value) for token, value in zip(tokens, weights, strict=True) if value != common}
    # sentence-transformers also looks tokens up in lower case: a token that would match another one is listed, too.
    named |= {token: common for token in tokens if token not in named and token.lower() in named}
    return Module("WordWeights", {"vocab": tokens, "word_weights": named, "unknown_word_weight": common})
