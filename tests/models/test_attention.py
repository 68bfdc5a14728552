"""The kernel for long rows, interpreted on a CPU: plain attention's result, and no segment sees another."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.models import init_model
from jaxwhiten.models.attention import Splash, kernel_for
from jaxwhiten.models.packing import Segments
from tests.tiny import tiny_config

LENGTHS, LENGTH = np.array([[70, 3, 120], [200, 40, 0]]), 256
INTERPRETED = Splash(interpret=True)


def states_of(config, ids, kernel):
    model = init_model(config, seed=0)
    segments = Segments.of(jnp.asarray(LENGTHS), LENGTH)
    mask = jnp.asarray(np.arange(LENGTH) < LENGTHS.sum(axis=1, keepdims=True), jnp.int32)
    output = jax.jit(lambda ids: model(ids, mask, segments=segments, kernel=kernel))(ids)
    return np.asarray(output.hidden_states[-1]) * np.asarray(mask)[:, :, None], output


@pytest.fixture(scope="module")
def ids():
    return jax.random.randint(jax.random.key(0), (2, LENGTH), 5, 200)


LOCAL = {"local_layers": (0,), "local_window": 16, "type_vocab_size": 0, "pooler": False, "model_type": "modernbert"}


@pytest.mark.parametrize("changes", [{}, LOCAL], ids=["everywhere", "within a window"])
def test_it_is_plain_attention_and_leaks_nothing(ids, changes):
    config = tiny_config(num_layers=1, num_heads=2, max_positions=LENGTH, initializer_range=0.2, **changes)
    plain, output = states_of(config, ids, None)
    found, without = states_of(config, ids, INTERPRETED)
    np.testing.assert_allclose(found, plain, atol=1e-5)
    assert len(output.attention_diagonals) == 1
    assert without.attention_diagonals == ()
    changed, _ = states_of(config, ids.at[0, 70:73].set(7), INTERPRETED)
    others = np.ones((2, LENGTH), bool)
    others[0, 70:73] = False
    np.testing.assert_array_equal(changed[others], found[others])
    assert np.abs(changed[0, 70:73] - found[0, 70:73]).max() > 1e-3


def test_it_is_chosen_where_it_reads_less():
    assert kernel_for("tpu", "bfloat16") == Splash()
    assert kernel_for("tpu", "float32") is kernel_for("cpu", "bfloat16") is kernel_for("gpu", "bfloat16") is None
    assert dataclasses.replace(INTERPRETED, window=3) != INTERPRETED


def test_relative_positions_keep_plain_attention(ids):
    config = tiny_config(
        num_layers=1, model_type="mpnet", type_vocab_size=0, relative_buckets=8, max_positions=LENGTH, pooler=False
    )
    _, output = states_of(config, ids, INTERPRETED)
    assert len(output.attention_diagonals) == 1
