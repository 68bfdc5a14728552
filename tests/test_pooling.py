"""Each pooling against a plain loop over sentences and tokens."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.models import EncoderOutput
from jaxwhiten.pooling import POOLINGS, canonical, pool

LENGTHS = (5, 1, 7)


@pytest.fixture
def states():
    rng = np.random.default_rng(0)
    hidden = [rng.normal(size=(3, 7, 4)).astype(np.float32) for _ in range(4)]
    mask = (np.arange(7) < np.array(LENGTHS)[:, None]).astype(np.int32)
    return hidden, mask, rng.normal(size=(3, 4)).astype(np.float32)


def by_hand(name, hidden, pooler):
    last = hidden[-1]
    one = {
        "cls": lambda b, n: last[b, 0],
        "mean": lambda b, n: last[b, :n].mean(0),
        "max": lambda b, n: last[b, :n].max(0),
        "first_last_avg": lambda b, n: (hidden[1][b, :n].mean(0) + last[b, :n].mean(0)) / 2,
        "embeddings_last_avg": lambda b, n: (hidden[0][b, :n].mean(0) + last[b, :n].mean(0)) / 2,
        "last2avg": lambda b, n: (hidden[-2][b, :n].mean(0) + last[b, :n].mean(0)) / 2,
        "pooler": lambda b, n: pooler[b],
    }[name]
    return np.stack([one(b, n) for b, n in enumerate(LENGTHS)])


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_pooling_equals_a_plain_loop(states, name):
    hidden, mask, pooler = states
    output = EncoderOutput(tuple(map(jnp.asarray, hidden)), jnp.asarray(pooler))
    got = pool(output, jnp.asarray(mask), (name,))[name]
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, by_hand(name, hidden, pooler), atol=1e-6)


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_padding_changes_nothing(states, name):
    hidden, mask, pooler = states
    poisoned = [np.where(mask[:, :, None] > 0, h, 1e6).astype(np.float32) for h in hidden]
    results = [
        pool(EncoderOutput(tuple(map(jnp.asarray, h)), jnp.asarray(pooler)), jnp.asarray(mask), (name,))[name]
        for h in (hidden, poisoned)
    ]
    np.testing.assert_array_equal(*results)


def test_alias_and_typo():
    assert canonical("last_avg") == "mean"
    with pytest.raises(InputError, match="'first_last_avg'"):
        canonical("first_last")


def test_a_model_without_pooler_says_so(states):
    hidden, mask, _ = states
    with pytest.raises(ModelError, match="no pooler"):
        pool(EncoderOutput(tuple(map(jnp.asarray, hidden)), None), jnp.asarray(mask), ("pooler",))
