"""Poolings with parameters: grids of layers through `Encoder.encode`."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxwhiten import Encoder
from jaxwhiten.engines.forward import forward
from jaxwhiten.errors import MismatchError, ModelError
from jaxwhiten.head import Dense, Head, write_folder
from jaxwhiten.head.pooling import Cls, Concat, Mean
from tests.tiny import write_model


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48)


@pytest.mark.jax
def test_nothing_is_computed_twice_or_for_nothing(encoder):
    """Each layer's mean is taken once, however many poolings share it; padding passes no dense layer."""
    graph = encoder.view.core.engine._graph
    weights = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in encoder.view.core.engine._weights]
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("data",))

    def flops(names, tokens=None):
        ids, lengths = jnp.ones((16, 1, 32), jnp.int32), jnp.full((16, 1), 32)
        arguments = (graph, weights, ids, lengths, tuple(Head.named(name).steps for name in names), tokens, mesh)
        cost = forward.lower(*arguments).compile().cost_analysis()
        return (cost[0] if isinstance(cost, list) else cost)["flops"]

    grid = tuple(f"layers:{i}+{j}" for i, j in itertools.combinations(range(3), 2))
    states = 16 * 32 * 32  # numbers in a hidden state
    assert flops(grid) - flops(tuple(f"layers:{i}" for i in range(3))) < states
    assert flops(("layers:1",)) < 0.6 * flops(("layers:2",))  # layers that no pooling reads cost nothing
    assert flops(("mean",), tokens=128) < 0.6 * flops(("mean",))  # of 512 positions; attention keeps them all


def test_a_model_without_pooler_is_named(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = write_model(tmp_path / "bare")
    file = folder / "model.safetensors"
    save_file({name: value for name, value in load_file(file).items() if not name.startswith("pooler")}, file)
    with pytest.raises(ModelError, match="bare: This model has no pooler"):
        Encoder.from_pretrained(folder, pooling="pooler", max_length=48)


def test_a_layer_of_the_folder_that_a_pooling_does_not_fit(encoder, tmp_path):
    layer = Dense(2 * np.eye(8, 64, dtype=np.float32), np.zeros(8, np.float32), None, "Identity")
    head = Head.of((Concat((Cls(), Mean())), layer))
    folder = write_folder(tmp_path / "model", encoder.module, encoder.view.core.tokenizer, head)
    own = Encoder.from_pretrained(folder)
    for ask in (lambda **how: Encoder.from_pretrained(folder, **how), lambda **how: own.encode("a", **how)):
        with pytest.raises(MismatchError, match=r"64 dimensions, got 32.*omit pooling='cls', or .*bare=True"):
            ask(pooling="cls")
    assert Encoder.from_pretrained(folder, pooling="cls", bare=True).dimension == 32
