"""Steps before the pooling: the mix of hidden states."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head.steps import Found, States, StateStep, Step, StepModule, Target, array, step
from jaxwhiten.models import EncoderConfig, checkpoint, folders
from jaxwhiten.types import AnyArray, OnnxGraph

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
