"""Poolings of research against plain loops, through `Encoder.encode`."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder
from tests.tiny import SENTENCES, by_pooling


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48, engine="jax")


def alone(encoder, text):
    """Token ids and hidden states of one sentence."""
    ids = jnp.asarray(encoder.view.core.tokenizer([text]).flat[None])
    states = encoder.module(ids, jnp.ones_like(ids)).hidden_states
    return ids[0].tolist(), [np.asarray(x[0], np.float64) for x in states]


def test_ditto(encoder):
    got = encoder.encode(SENTENCES, pooling="ditto:1,2")
    np.testing.assert_array_equal(got, encoder.encode(SENTENCES, pooling="ditto:-1+-2"))
    part = encoder.module.layers[1].attention
    head = slice(2 * part.head_size, 3 * part.head_size)
    for row in (0, 4, 9):
        _, states = alone(encoder, SENTENCES[row])
        maps = (
            (np.asarray(map.kernel[...])[:, head], np.asarray(map.bias[...])[head]) for map in (part.query, part.key)
        )
        query, key = (states[1] @ kernel + bias for kernel, bias in maps)
        attention = np.exp(query @ key.T / np.sqrt(part.head_size))
        weights = attention.diagonal() / attention.sum(axis=1)
        np.testing.assert_allclose(got[row], weights @ (states[0] + states[-1]) / 2, atol=1e-5)


def test_promptbert_beside_other_poolings(encoder):
    sentences = [*SENTENCES, "A [MASK] of its own.", "water " * 300]
    mask, first = encoder.view.core.tokenizer.mask_token_id, "promptbert:{mask} means {text}"
    got = by_pooling(encoder, sentences, ["mean", "promptbert", first])
    np.testing.assert_array_equal(got["mean"], encoder.encode(sentences, pooling="mean"))
    for row in (0, 3, 10):
        ids, states = alone(encoder, f'This sentence : "{sentences[row]}" means [MASK] .')
        np.testing.assert_allclose(got["promptbert"][row], states[-1][-1 - ids[::-1].index(mask)], atol=1e-5)
        ids, states = alone(encoder, f"[MASK] means {sentences[row]}")
        np.testing.assert_allclose(got[first][row], states[-1][ids.index(mask)], atol=1e-5)
    assert np.isfinite(got["promptbert"]).all()
