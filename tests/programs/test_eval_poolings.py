"""Poolings of research against plain loops, through `Encoder.encode`, and what they refuse."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder
from tests.tiny import SENTENCES, by_pooling


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48, engine="jax")


@pytest.fixture(scope="module")
def alone(encoder):
    """Token ids, hidden states and attention maps of one sentence, from queries and keys of plain numpy."""
    model = encoder.module

    def run(text):
        ids = jnp.asarray(encoder.view.core.tokenizer([text]).flat[None])
        states = [np.asarray(x[0], np.float64) for x in model(ids, jnp.ones_like(ids)).hidden_states]
        maps = []
        for layer, x in zip(model.layers, states, strict=False):
            part = layer.attention
            query, key = (x @ np.asarray(map.kernel[...]) + np.asarray(map.bias[...]) for map in (part.query, part.key))
            shape = (len(x), -1, part.head_size)
            scores = np.einsum("qhd,khd->hqk", query.reshape(shape), key.reshape(shape)) / np.sqrt(part.head_size)
            shares = np.exp(scores - scores.max(2, keepdims=True))
            maps.append(shares / shares.sum(2, keepdims=True))
        return ids[0].tolist(), states, maps

    return run


def test_ditto(encoder, alone):
    for name, layer, head in (("ditto:1,2", 1, 2), ("ditto:-1+0", -1, 0)):
        got = encoder.encode(SENTENCES, pooling=name)
        for row in (0, 4, 9):
            _, states, maps = alone(SENTENCES[row])
            weights = maps[layer][head].diagonal()
            np.testing.assert_allclose(got[row], weights @ (states[0] + states[-1]) / 2, atol=1e-5)


def test_promptbert_beside_other_poolings(encoder, alone):
    sentences = [*SENTENCES, "A [MASK] of its own.", "water " * 300]
    mask = encoder.view.core.tokenizer.mask_token_id
    first = "promptbert:{mask} means {text}"
    got = by_pooling(encoder, sentences, ["mean", "promptbert", first])
    np.testing.assert_array_equal(got["mean"], encoder.encode(sentences, pooling="mean"))
    for row in (0, 3, 10):
        ids, states, _ = alone(f'This sentence : "{sentences[row]}" means [MASK] .')
        position = len(ids) - 1 - ids[::-1].index(mask)
        np.testing.assert_allclose(got["promptbert"][row], states[-1][position], atol=1e-5)
        ids, states, _ = alone(f"[MASK] means {sentences[row]}")
        np.testing.assert_allclose(got[first][row], states[-1][ids.index(mask)], atol=1e-5)
    assert np.isfinite(got["promptbert"]).all()
