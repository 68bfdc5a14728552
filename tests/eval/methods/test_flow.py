"""BERT-flow: invertible, its likelihood that of the density it defines, and rising as it is fitted."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from eval.methods import BertFlow
from eval.methods.glow import Glow, Shift


def data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    curved = np.tanh(rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) / 2) + 0.3 * rng.standard_normal((n, d))
    return (curved @ rng.standard_normal((d, d)) + 3 * rng.standard_normal(d)).astype(np.float32)


def random_glow(d, levels=2, depth=2, seed=0):
    """A flow whose every parameter is random, so that no coupling is zero."""
    model = Glow(d, levels, depth, 4, np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    state = jax.tree.map(lambda a: jnp.asarray(0.3 * rng.standard_normal(a.shape), jnp.float32), nnx.state(model))
    nnx.update(model, state)
    return model


def test_forward_follows_its_definition():
    """One level of one step and a second level, written out in numpy."""
    d = 6
    model = random_glow(d, 2, 1)
    x = data(5, d).astype(np.float64)

    def norm(layer, x):
        return (x + np.asarray(layer.bias)) * np.exp(3 * np.asarray(layer.log_scale))

    def step(layer, x):
        y = norm(layer.norm, x)[:, ::-1]
        half = x.shape[1] // 2
        net: Shift = layer.shift
        hidden = np.maximum(norm(net.norm1, y[:, :half] @ np.asarray(net.kernel1)), 0)
        hidden = np.maximum(norm(net.norm2, hidden @ np.asarray(net.kernel2)), 0)
        shift = (hidden @ np.asarray(net.kernel3) + np.asarray(net.bias)) * np.exp(3 * np.asarray(net.log_scale))
        return np.concatenate([y[:, :half], y[:, half:] + shift], axis=1)

    y = step(model.levels[0][0], x)
    expected = np.concatenate([step(model.levels[1][0], y[:, :3]), y[:, 3:]], axis=1)
    np.testing.assert_allclose(model(jnp.asarray(x, jnp.float32)), expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def fitted():
    x = data(4000, 24)
    return BertFlow(depth=2, epochs=5).fit(x[:3500]), x


def log_likelihood(method, x):
    """Of a fitted flow, in nats."""
    state = method.flow_
    model = Glow(x.shape[1], *state.sizes, np.random.default_rng(0))
    nnx.update(model, state.params)
    return np.asarray(model.log_likelihood(jnp.asarray(x)))


def test_the_likelihood_rises_also_on_rows_not_seen(fitted):
    method, x = fitted
    bits = method.losses_
    assert len(bits) == 5 * (3500 // 64)
    assert bits[-50:].mean() < bits[:10].mean() - 0.05
    start = BertFlow(depth=2, epochs=0).fit(x[:3500])
    assert log_likelihood(method, x[3500:]).mean() > log_likelihood(start, x[3500:]).mean() + 1
    # The loss is the likelihood, in bits per dimension.
    assert -log_likelihood(method, x[:3500]).mean() / 24 / math.log(2) == pytest.approx(bits[-50:].mean(), abs=0.1)
