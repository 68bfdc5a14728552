"""Schedules against values worked out by hand, and the optimizer against Optax's own."""

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


@pytest.mark.parametrize(
    ("settings", "at", "rates"),
    [
        ({"steps": 20, "warmup": 0.1}, (0, 1, 2, 11, 19, 20), [0, 0.5, 1, 0.5, 1 / 18, 0]),
        ({"steps": 15, "warmup": 0.1}, (0, 1, 2), [0, 0.5, 1]),  # a part of a step is a whole one
        ({"steps": 20, "warmup": 0.0, "decay": "cosine"}, (0, 10, 20), [1, 0.5, 0]),
        ({"steps": 20, "warmup": 0.0, "decay": "constant"}, (0, 10, 20), [1, 1, 1]),
    ],
    ids=str,
)
def test_rates_of_a_schedule(settings, at, rates):
    schedule = module.schedule(make(**settings))
    assert [float(schedule(step)) for step in at] == pytest.approx(rates, abs=1e-5)


@pytest.mark.parametrize(
    "arguments", [{"decay": "linar"}, {"steps": -1}, {"warmup": 1.0}, {"warmup": -0.1}, {"optimizer": "adamm"}], ids=str
)
def test_mistakes_are_named(arguments):
    with pytest.raises(InputError, match=next(iter(arguments))):
        make(**{"steps": 10, **arguments})


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_the_optimizer_is_optax_adamw_of_clipped_gradients_whose_decay_spares_biases(clip_norm):
    rng = np.random.default_rng(0)
    params, *gradients = (
        {"kernel": jnp.asarray(rng.normal(size=(4, 3)) * step), "bias": jnp.asarray(rng.normal(size=3) * step)}
        for step in (1, 1, 2, 4)
    )
    theirs = optax.adamw(1.0, weight_decay=0.1, mask={"kernel": True, "bias": False})
    if clip_norm:
        theirs = optax.chain(optax.clip_by_global_norm(clip_norm), theirs)
    optimizers = transformation(make(8, weight_decay=0.1, clip_norm=clip_norm)), theirs
    states = [optimizer.init(params) for optimizer in optimizers]
    for of_step in gradients:
        pairs = zip(optimizers, states, strict=True)
        (found, expected), states = zip(*(one.update(of_step, state, params) for one, state in pairs), strict=True)
        for name in params:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
