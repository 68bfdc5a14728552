"""Objectives without labels: what is deleted and restored, two encoders, whitening inside the loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.conftest import own_cache
from tests.tiny import SENTENCES, write_model
from tests.training.setups import setup_for
from train.masked import MaskedHead
from train.tsdae import Decoder, delete_tokens

LENGTH = 16
TEXTS = [f"{a} {b}" for a in SENTENCES[:4] for b in SENTENCES[4:8]]


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("unsupervised") / "model", num_layers=1, hidden_size=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXWHITEN_CACHE_DIR", own_cache(folder.parent / "cache"))
        return setup_for(folder, [TEXTS], LENGTH)


def batch_of(setup):
    return jax.tree.map(jnp.asarray, setup.table.batch(np.arange(len(TEXTS)), LENGTH))


# --- TSDAE ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.6, 0.99])
def test_a_share_of_the_tokens_is_deleted_and_the_rest_keeps_its_order(share):
    lengths = np.array([12, 7, 3, 2])
    ids = np.zeros((4, 12), np.int32)
    for row, length in enumerate(lengths):
        ids[row, :length] = [1, *range(10, 8 + length), 2]
    runs = [delete_tokens(jnp.asarray(ids), jnp.asarray(lengths), share, jax.random.key(n)) for n in range(40)]
    for remaining, count in runs:
        for row, length in enumerate(lengths):
            inner = length - 2
            tokens = np.asarray(remaining[row, : count[row]])
            assert len(tokens) == 2 + min(max(round((1 - share) * inner), 1), inner)
            assert (tokens[0], tokens[-1]) == (1, 2)
            assert (np.diff(tokens[1:-1]) > 0).all(), "the order of the sentence"
    assert remaining.shape[1] == max(round((1 - share) * 10), 1) + 2
    if share:
        times = np.bincount(np.concatenate([np.asarray(remaining[0, 1 : count[0] - 1]) for remaining, count in runs]))[
            10:
        ]
        assert len(times) == 10, "every token has its turn"


def test_the_decoder_sees_the_tokens_before_and_the_vector_alone(setup):
    model = setup.model
    rng = nnx.Rngs(0)
    decoder = Decoder(model, 1, MaskedHead(model.config, dtype=model.dtype, rngs=rng), rngs=rng)
    ids = batch_of(setup)["input_ids"][:2, 0]
    vectors = jax.random.normal(jax.random.key(0), (2, 16))

    @jax.jit
    def logits(ids, vectors):
        return decoder(model, ids, vectors, rngs=nnx.Rngs(dropout=1))  # the same dropout in every call

    before = logits(ids, vectors)
    later = logits(ids.at[0, 5].add(1), vectors)
    np.testing.assert_array_equal(before[0, :5], later[0, :5])
    assert np.abs(before[0, 5:] - later[0, 5:]).max() > 1e-3
    np.testing.assert_array_equal(before[1], later[1])
    assert np.abs(before - logits(ids, vectors + 1)).max(axis=(1, 2)).min() > 1e-3


# --- the others -----------------------------------------------------------------------------------------------------
