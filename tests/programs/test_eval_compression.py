"""Codes in benchmarks of others: the scores there are those of our indexes."""

from types import SimpleNamespace

import numpy as np
import pytest

from eval import compression
from jaxwhiten import Encoder, SpectrumCode, build_index, normalize

RNG = np.random.default_rng(0)
DOCUMENTS = (RNG.normal(size=(300, 24)) * np.arange(24, 0, -1)).astype(np.float32)
QUERIES = DOCUMENTS[:12] + 12 * RNG.normal(size=(12, 24)).astype(np.float32)


def test_bitbudget_ranks_as_an_index_of_codes():
    scores, size = compression.compressed(6, DOCUMENTS, QUERIES)
    assert size == 6
    unit = normalize(DOCUMENTS)
    index = build_index(unit, "jax", codes=SpectrumCode(bytes=6).fit(unit))
    expected, ids = index.search(normalize(QUERIES), 5)
    np.testing.assert_array_equal(np.argsort(-scores, axis=1)[:, :5], ids)
    np.testing.assert_allclose(-np.sort(-scores, axis=1)[:, :5], expected, atol=1e-5)


def texts(kind, count):
    return {f"{kind}{number}": f"{kind} {number}" for number in range(count)}


@pytest.fixture
def cached():
    """Vectors of texts, as `compression.CachedVectors` has them."""
    vectors = {f"d {i}": x for i, x in enumerate(normalize(DOCUMENTS))}
    vectors |= {f"q {i}": x for i, x in enumerate(normalize(QUERIES))}
    return SimpleNamespace(lookup=lambda texts: np.stack([vectors[text] for text in texts]))


JUDGED = {f"q{number}": {f"d{number}": 1} for number in range(12)}


def test_bitbudgets_own_protocol(cached, monkeypatch):
    pytest.importorskip("bitbudget")
    monkeypatch.setattr(compression, "BYTES", (12,))
    rows = {row["method"]: row for row in compression.by_bitbudget(cached, texts("d", 300), texts("q", 12), JUDGED)}
    assert rows["spectrum, 12 bytes"]["bytes"] == 12
    assert rows["spectrum, 12 bytes"]["recall"] > rows["matryoshka"]["recall"]


@pytest.mark.slow
def test_mteb_scores_codes_beside_its_own_compressions(cached, monkeypatch, tiny_model):
    pytest.importorskip("mteb")
    cached.encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    monkeypatch.setattr(compression, "BYTES", (12,))
    monkeypatch.setattr(compression, "_TYPES", {"binary": "BINARY"})
    task = compression.task_of(texts("d", 300), texts("q", 12), JUDGED, "SciFact")
    found = dict(compression.by_mteb(cached, task))
    code = SpectrumCode(bytes=12).fit(normalize(DOCUMENTS))
    scores = code.scores(normalize(QUERIES), code.encode(normalize(DOCUMENTS)))
    ranks = (scores > scores[np.arange(12), np.arange(12)][:, None]).sum(axis=1)
    expected = np.mean(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0))
    assert found["spectrum, 12 bytes"] == pytest.approx(expected, abs=1e-5)
    assert found["binary"] < found["float32"]
    model = compression.CodeWrapper(compression._Model(cached), 12)
    assert model.mteb_model_meta.experiment_kwargs["bytes"] == "12"
    batches = [{"text": ["d 0", "d 1"]}]
    np.testing.assert_array_equal(model.encode(batches, prompt_type="query"), cached.lookup(["d 0", "d 1"]))
