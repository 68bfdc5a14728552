"""Moments of sentences: those of their vectors, from a stream of blocks."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from jaxwhiten.views import view
from tests.sentences import generated

pytestmark = pytest.mark.devices

TEXTS = generated(500)


@pytest.fixture
def encoder(tiny_model, monkeypatch):
    """In blocks of 200 sentences and batches of few."""
    encoder = Encoder.from_pretrained(tiny_model, pooling="first_last_avg", max_length=32)
    monkeypatch.setattr(encoder.view.core.engine.layout, "token_budget", 8 * 256)
    monkeypatch.setattr(view, "BLOCK", 200)
    return encoder


def close(found, expected):
    assert found.n == expected.n
    for name in ("mean", "M2"):
        a, b = getattr(found, name), getattr(expected, name)
        assert np.abs(a - b).max() <= 1e-6 * np.abs(b).max(), name


@pytest.mark.parametrize("share_rows", [False, True])
def test_they_are_those_of_the_vectors(encoder, monkeypatch, share_rows):
    expected = Moments().update(encoder.encode(TEXTS))
    monkeypatch.setattr(encoder.view.core.engine.layout, "share_rows", share_rows)
    close(encoder.view.moments(iter(TEXTS)), expected)
