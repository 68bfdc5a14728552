"""The step: accumulation and devices change nothing, noise follows seed and step; schedules by hand, Optax's AdamW."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from jaxwhiten.errors import InputError
from jaxwhiten.options import TrainingOptions
from jaxwhiten.training.step import create_state, data_mesh, make_step, place_batch, schedule, transformation
from tests.training import toy

pytestmark = pytest.mark.devices


def no_noise(params, batch, key):
    del key
    error = (batch["x"] @ params["kernel"] + params["bias"] - batch["y"]) ** 2
    return jnp.mean(error), {"mean": jnp.mean(error)}


def run(loss_fn, *, mesh=None, steps=6, frozen=None, params=None, **changes):
    how = toy.how(**changes)
    mesh = mesh or data_mesh(how)
    state = create_state(params or toy.params(), how, mesh)
    step = make_step(loss_fn, how, mesh, frozen)
    batches, rows = toy.batches(), []
    for _ in range(steps):
        state, metrics = step(state, place_batch(next(batches), mesh))
        rows.append({name: float(value) for name, value in metrics.items()})
    return state, rows


def losses(rows):
    return [row["loss"] for row in rows]


def test_metrics_and_movement():
    mine = toy.params()
    state, rows = run(toy.loss_fn, steps=30, params=mine)
    assert not mine["kernel"].any(), "the caller's stay"
    assert int(state.step) == 30
    assert set(rows[0]) == {"loss", "learning_rate", "grad_norm", "worst"}
    assert rows[0]["learning_rate"] == 0.0
    assert rows[-1]["loss"] < 0.2 * rows[0]["loss"]


def test_accumulation_gives_the_gradient_of_the_whole_batch():
    one, two = run(no_noise)[1], run(no_noise, accumulate=2)[1]
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, abs=1e-5)


def test_devices_change_nothing():
    one = run(toy.loss_fn, mesh=Mesh(np.array(jax.devices()[:1]), ("data",)))
    eight = run(toy.loss_fn)
    assert len(eight[0].params["kernel"].sharding.device_set) == 8
    np.testing.assert_allclose(losses(one[1]), losses(eight[1]), atol=1e-5)


def test_noise_follows_seed_and_step():
    found, again, other = (losses(run(toy.loss_fn, seed=seed)[1]) for seed in (0, 0, 1))
    assert found == again != other


def test_noise_differs_from_step_to_step_and_from_part_to_part():
    def noise(params, batch, key):
        drawn = jax.random.normal(key)
        return drawn + 0 * params["bias"][0] * batch["x"].sum(), {"square": drawn**2}

    whole = [row["square"] for row in run(noise)[1]]
    assert len(set(whole)) == len(whole)
    for row in run(noise, accumulate=2)[1]:
        # The mean square of two draws is the square of their mean only where they are one draw.
        assert row["square"] > row["loss"] ** 2 + 1e-6


def test_uneven_batches_are_refused():
    with pytest.raises(InputError, match="8 devices"):
        data_mesh(toy.how(batch_size=12))
    with pytest.raises(InputError, match="3 accumulation"):
        data_mesh(toy.how(batch_size=16, accumulate=3))


def test_frozen_parts_reach_the_loss_on_every_device_and_stay_out_of_the_state():
    def shifted(params, batch, key):
        assert isinstance(params["frozen"]["shift"], jax.core.Tracer), "a constant of the program would be compiled in"
        return no_noise(params, batch | {"y": batch["y"] + params["frozen"]["shift"]}, key)

    def with_constant(params, batch, key):
        return no_noise(params, batch | {"y": batch["y"] + 2.0}, key)

    state, rows = run(shifted, frozen={"shift": np.float32(2.0)}, accumulate=2)
    assert losses(rows) == pytest.approx(losses(run(with_constant, accumulate=2)[1]), abs=1e-5)
    assert set(state.params) == set(toy.params())


def test_runs_of_other_lengths_rates_and_seeds_share_a_program():
    """Which JAX's cache then serves; a setting of the optimizer is part of it."""

    def program(**changes):
        how = toy.how(**changes)
        mesh = data_mesh(how)
        state, step = create_state(toy.params(), how, mesh), make_step(toy.loss_fn, how, mesh)
        batch = place_batch(next(toy.batches()), mesh)
        return step.program.lower(step.frozen, *step.begin(state.step), state, batch).as_text()

    assert program() == program(steps=7, learning_rate=0.3, seed=5, warmup=0.5, decay="cosine")
    assert program() != program(b2=0.9)


# --- schedules and the optimizer -------------------------------------------------------------------------------------


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
    rate = schedule(TrainingOptions(**settings, learning_rate=1.0))
    assert [float(rate(step)) for step in at] == pytest.approx(rates, abs=1e-5)


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
    optimizers = transformation(TrainingOptions(weight_decay=0.1, clip_norm=clip_norm)), theirs
    states = [optimizer.init(params) for optimizer in optimizers]
    for of_step in gradients:
        pairs = zip(optimizers, states, strict=True)
        (found, expected), states = zip(*(one.update(of_step, state, params) for one, state in pairs), strict=True)
        for name in params:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
