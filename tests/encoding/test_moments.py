"""Moments of sentences whose vectors stay on the devices: those of the host's route, and what passes to the host."""

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from jaxwhiten.encoding import stream
from jaxwhiten.engines import forward
from jaxwhiten.engines.batching import Found
from jaxwhiten.errors import NonFiniteError
from jaxwhiten.head import Dense
from tests.commands.conftest import generated

pytestmark = pytest.mark.devices

TEXTS = generated(500)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="first_last_avg", max_length=32)


@pytest.fixture
def reducing(encoder, monkeypatch):
    """As on an accelerator, in blocks of 200 sentences and batches of few."""
    monkeypatch.setattr(encoder.executor, "reduces", True)
    monkeypatch.setattr(encoder.executor.layout, "token_budget", 8 * 256)
    monkeypatch.setattr(stream, "BLOCK", 25)
    return encoder


def close(found, expected):
    assert found.n == expected.n
    for name in ("mean", "M2"):
        a, b = getattr(found, name), getattr(expected, name)
        assert np.abs(a - b).max() <= 1e-6 * np.abs(b).max(), name


@pytest.fixture
def fetched(monkeypatch):
    """Bytes that pass to the host, by which way."""
    counted = {"vectors": 0, "sums": 0}
    rows, get = forward._rows, jax.device_get

    def counting_rows(vectors):
        counted["vectors"] += sum(x.vectors.nbytes for x in vectors.values())
        before = counted["sums"]
        found = rows(vectors)
        counted["sums"] = before
        return found

    def counting_get(tree):
        counted["sums"] += sum(x.nbytes for x in jax.tree.leaves(tree))
        return get(tree)

    monkeypatch.setattr(forward, "_rows", counting_rows)
    monkeypatch.setattr(jax, "device_get", counting_get)
    return counted


@pytest.mark.parametrize("share_rows", [False, True])
def test_they_are_those_of_the_host_and_only_sums_are_fetched(encoder, reducing, monkeypatch, fetched, share_rows):
    expected = Moments().update(encoder.encode(TEXTS))
    assert fetched["vectors"] >= 500 * 32 * 4
    fetched["vectors"] = 0
    monkeypatch.setattr(encoder.executor.layout, "share_rows", share_rows)
    reducing._tuned = True  # not judged by vectors
    found = reducing.moments(iter(TEXTS))
    close(found, expected)
    d, blocks = 32, 3
    assert fetched == {"vectors": 0, "sums": blocks * 4 * (d * d + d + d + 1)}


def test_a_cpu_keeps_its_own_route(encoder, fetched):
    assert not encoder.executor.reduces
    close(encoder.moments(TEXTS), Moments().update(encoder.encode(TEXTS)))
    assert fetched["sums"] == 0


def test_vectors_that_are_not_finite_are_named(reducing, monkeypatch):
    fetch = type(reducing.executor).fetch

    def spoiled(self, handle, **how):
        found = fetch(self, handle, **how)
        return {name: Found(x * np.float32(np.nan), finite & False) for name, (x, finite) in found.items()}

    monkeypatch.setattr(type(reducing.executor), "fetch", spoiled)
    with pytest.raises(NonFiniteError, match="text 0, '"):
        reducing.moments(TEXTS[:50])


def test_vectors_of_any_size_have_moments(encoder, reducing):
    for size in (1e-12, 1e12):
        scaled = reducing.then(Dense(np.eye(32, dtype=np.float32) * np.float32(size), None, None, "Identity"))
        close(scaled.moments(TEXTS[:60]), Moments().update(scaled.encode(TEXTS[:60])))


def test_no_sentences_have_no_moments(reducing):
    assert reducing.moments([]).n == 0
