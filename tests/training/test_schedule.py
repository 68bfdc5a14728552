"""Schedules and optimizer: values worked out by hand, and parity with PyTorch's AdamW under transformers' schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.options import TrainingOptions
from jaxwhiten.training import step as module
from jaxwhiten.training.step import transformation


def make(steps, rate=1.0, **settings):
    return TrainingOptions(steps=steps, batch_size=8, learning_rate=rate, **settings)


def test_linear_warm_up_and_decay():
    schedule = module.schedule(make(20, warmup=0.1))
    assert [float(schedule(step)) for step in (0, 1, 2, 11, 19, 20)] == pytest.approx([0, 0.5, 1, 0.5, 1 / 18, 0])


def test_a_part_of_a_step_is_warmed_up_for_a_whole_one():
    schedule = module.schedule(make(15, warmup=0.1))
    assert [float(schedule(step)) for step in (0, 1, 2)] == pytest.approx([0, 0.5, 1])


@pytest.mark.parametrize(("decay", "middle", "end"), [("cosine", 0.5, 0.0), ("constant", 1.0, 1.0)])
def test_other_decays(decay, middle, end):
    schedule = module.schedule(make(20, warmup=0.0, decay=decay))
    assert [float(schedule(step)) for step in (0, 10, 20)] == pytest.approx([1.0, middle, end], abs=1e-5)


@pytest.mark.parametrize("arguments", [{"decay": "linar"}, {"steps": -1}, {"warmup": 1.0}, {"warmup": -0.1}])
def test_mistakes_are_named(arguments):
    with pytest.raises(InputError):
        make(**{"steps": 10, **arguments})
    with pytest.raises(InputError, match="adamw"):
        make(10, optimizer="adamm")


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_adamw_worked_out_in_numpy(clip_norm):
    rng = np.random.default_rng(0)
    rate, decay, b1, b2, eps = 1e-2, 0.1, 0.9, 0.999, 1e-8
    params = {"kernel": rng.normal(size=(4, 3)), "bias": rng.normal(size=3)}
    expected = {name: value.copy() for name, value in params.items()}
    means, squares = ({name: np.zeros_like(value) for name, value in params.items()} for _ in range(2))
    constant = {"warmup": 0.0, "decay": "constant"}
    optimizer = transformation(make(8, weight_decay=decay, clip_norm=clip_norm, **constant))  # at a rate of 1
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    state = optimizer.init(params)
    for step in range(1, 9):
        gradients = {name: rng.normal(size=value.shape) * step for name, value in expected.items()}
        updates, state = optimizer.update(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), gradients), state, params)
        params = optax.apply_updates(params, jax.tree.map(lambda update: rate * update, updates))
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        for name, g in gradients.items():
            g = g * min(1, clip_norm / norm) if clip_norm else g
            means[name] = b1 * means[name] + (1 - b1) * g
            squares[name] = b2 * squares[name] + (1 - b2) * g**2
            move = means[name] / (1 - b1**step) / (np.sqrt(squares[name] / (1 - b2**step)) + eps)
            expected[name] -= rate * (move + (decay * expected[name] if name == "kernel" else 0))
    for name, value in params.items():
        np.testing.assert_allclose(value, expected[name], atol=2e-6)
