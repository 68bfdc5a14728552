"""The kernels for long rows, interpreted on a CPU: plain attention's result, and no segment sees another."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.models import attention, init_model
from jaxwhiten.models.attention import Fused, Splash, kernel_for
from jaxwhiten.models.positions import Segments
from tests.conftest import slow_but
from tests.tiny import tiny_config

LENGTHS, LENGTH = np.array([[70, 3, 120], [200, 40, 0]]), 256
KERNELS = {"splash": Splash(interpret=True), "as cuDNN is asked": Fused(implementation="xla")}


def states_of(config, ids, kernel, dtype="float32"):
    model = init_model(config, seed=0, dtype=dtype)
    segments = Segments.of(jnp.asarray(LENGTHS), LENGTH)
    mask = jnp.asarray(np.arange(LENGTH) < LENGTHS.sum(axis=1, keepdims=True), jnp.int32)
    output = jax.jit(lambda ids: model(ids, mask, segments=segments, kernel=kernel))(ids)
    return np.asarray(output.hidden_states[-1], np.float32) * np.asarray(mask)[:, :, None]


@pytest.fixture(scope="module")
def ids():
    return jax.random.randint(jax.random.key(0), (2, LENGTH), 5, 200)


LOCAL = {"local_layers": (0,), "local_window": 16, "type_vocab_size": 0, "pooler": False, "model_type": "modernbert"}


DECODER = LOCAL | {"num_layers": 2, "causal": True, "num_kv_heads": 1, "query_scalar": 3.0}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("changes", [{}, LOCAL, DECODER], ids=["everywhere", "within a window", "causal, shared heads"])
def test_it_is_plain_attention_and_leaks_nothing(ids, changes, kernel):
    config = tiny_config(
        **{"num_layers": 1, "num_heads": 2, "max_positions": LENGTH, "initializer_range": 0.2} | changes
    )
    plain, found = (states_of(config, ids, each) for each in (None, kernel))
    np.testing.assert_allclose(found, plain, atol=1e-5)
    changed = states_of(config, ids.at[0, 70:73].set(7), kernel)
    others = np.ones((2, LENGTH), bool)
    others[0, 70:73] = False
    np.testing.assert_array_equal(changed[others], found[others])
    assert np.abs(changed[0, 70:73] - found[0, 70:73]).max() > 1e-3
    rough = states_of(config, ids, kernel, "bfloat16")
    assert np.abs(rough - plain).max() < 5e-2 * np.abs(plain).max()


BIASED = {"model_type": "mpnet", "relative_buckets": 32, "type_vocab_size": 0, "pooler": False}


@pytest.mark.parametrize("changes", [{}, LOCAL, BIASED], ids=["everywhere", "within a window", "biased"])
@pytest.mark.parametrize("length", slow_but([32, 101], 101))
def test_blocks_of_queries_give_what_all_at_once_give(monkeypatch, changes, length):
    model = init_model(
        tiny_config(num_layers=1, num_heads=2, max_positions=128, initializer_range=0.2, **changes), seed=0
    )
    ids = jax.random.randint(jax.random.key(0), (2, length), 5, 200)
    mask = jnp.asarray(np.arange(length) < np.array([[length], [7]]), jnp.int32)
    run = lambda: jax.jit(lambda ids, mask: model(ids, mask))(ids, mask)  # noqa: E731
    whole = run()
    monkeypatch.setattr(attention, "_SCORES", 1)  # the fewest at a time, 16
    found = run()
    for a, b in zip(found.hidden_states, whole.hidden_states, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_no_map_of_a_long_text_is_kept():
    model = init_model(tiny_config(num_layers=1, num_heads=2, max_positions=4096), seed=0)
    ids = jax.ShapeDtypeStruct((1, 4096), "int32")
    compiled = jax.jit(lambda ids, mask: model(ids, mask).hidden_states[-1]).lower(ids, ids).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2 * 4096**2  # a map has 8 × as many


def test_it_is_chosen_where_it_reads_less(monkeypatch):
    cpu, gpu, tpu = (mock.Mock(spec=jax.Device, platform=name) for name in ("cpu", "gpu", "tpu"))
    asked = []
    monkeypatch.setattr(Fused, "runs_on", lambda *how: asked.append(how[1:]) or how[-1] <= 128)
    assert kernel_for(tpu, "bfloat16", 64) == Splash()
    assert kernel_for(gpu, "bfloat16", 64) == Fused()
    assert kernel_for(gpu, "bfloat16", 64) == Fused()
    assert asked == [(gpu, "bfloat16", 64)], "once per shape"
    refused = (gpu, "bfloat16", 136), (cpu, "bfloat16", 64), (gpu, "float32", 64), (tpu, "float32", 64)
    assert [kernel_for(*how) for how in refused] == [None] * 4


def test_a_device_is_asked_by_compiling():
    cpu = jax.devices("cpu")[0]
    assert Fused(implementation="xla").runs_on(cpu, "bfloat16", 64)
    assert not Fused().runs_on(cpu, "bfloat16", 64)
