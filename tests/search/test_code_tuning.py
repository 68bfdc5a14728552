"""γ and the code chosen by pseudo-queries: their words, the figures by definition, and when the usual one is left."""

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import InputError
from jaxwhiten.search import pseudo_queries, tune_codes

pytest.importorskip("faiss")
N, D, Q = 1200, 24, 150


def test_a_pseudo_query_is_its_document_without_a_share_of_the_words():
    texts = ["one two three", "", "a b c d e f g h i j", "too short"] * 5
    queries, sources = pseudo_queries(texts, 7)
    assert len(queries) == len(sources) == 7
    assert set(sources % 4) == {0, 2}
    for query, source in zip(queries, sources, strict=True):
        words = texts[source].split()
        assert len(query.split()) == len(words) - {3: 1, 10: 3}[len(words)]
        assert query.split() == [word for word in words if word in query.split()]
    assert pseudo_queries(texts, 7)[0] == queries
    assert pseudo_queries(texts, 7, seed=1)[0] != queries
    with pytest.raises(InputError, match="3 words"):
        pseudo_queries(["too short"])


@pytest.fixture(scope="module")
def searched():
    """Vectors in which a few loud axes say nothing: queries have their own values there."""
    rng = np.random.default_rng(0)
    scale = np.r_[np.full(3, 6.0), np.full(D - 3, 1.0)]
    documents = rng.standard_normal((N, D))
    queries = documents[:Q] + 0.25 * rng.standard_normal((Q, D))
    queries[:, :3] = rng.standard_normal((Q, 3))
    return (documents * scale).astype(np.float32), (queries * scale).astype(np.float32)


def by_definition(code, documents, queries):
    z, q = code.decode(code.encode(documents)), code.transform(queries)
    order = np.argsort(((q[:, None] - z[None]) ** 2).sum(-1), axis=1, kind="stable")[:, :10]
    return [next((100 / (i + 1) for i, d in enumerate(row) if d == n), 0.0) for n, row in enumerate(order)]


def test_the_usual_gamma_is_left_for_one_that_is_better_beyond_chance(searched):
    documents, queries = searched
    whitening = Whitening().fit(documents)
    found = tune_codes(documents, queries, np.arange(Q), whitening, 6, codes=["sq4", "int8"], gammas=[0, 0.75, 1])
    tried = [("spectrum", g) for g in (0, 0.5, 0.75, 1)] + [("sq4", 0.75)]
    assert [(t.code, t.gamma) for t in found.trials] == tried
    assert found.trials[3].cost > found.trials[2].cost  # but two steps from the usual one
    assert (found.usual, found.best.gamma, found.queries) == (0.5, 0.75, Q)
    assert "24 bytes" in found.left_out["int8"]
    raw = normalize(queries) @ normalize(documents).T
    place = (raw > raw[np.arange(Q), np.arange(Q), None]).sum(axis=1) + 1
    assert found.mrr == pytest.approx(np.mean(np.where(place <= 10, 100 / place, 0)), abs=1e-3)
    for trial in found.trials[:4]:
        code = SpectrumCode(bytes=6, gamma=trial.gamma).fit(Moments().update(documents))
        wanted = np.mean(by_definition(code, documents, queries)) - found.mrr
        assert trial.cost == pytest.approx(wanted, abs=0.5)  # documents of equal codes are ties
        assert trial.low <= trial.cost <= trial.high


def test_a_lead_by_chance_changes_nothing(searched):
    documents, _ = searched
    few = documents[:12] + documents.std(axis=0) * np.random.default_rng(1).standard_normal((12, D))
    found = tune_codes(documents, few.astype(np.float32), np.arange(12), Whitening().fit(documents), 8, codes=["pq"])
    (usual,) = [trial for trial in found.trials if (trial.code, trial.gamma) == ("spectrum", 0.5)]
    assert max(trial.cost for trial in found.trials if trial.code == "spectrum") > usual.cost + 5
    assert found.best == usual
    assert {t.code for t in found.trials} == {"spectrum", "pq"}


def test_too_few_documents_to_train_on_are_told(searched):
    documents, _ = searched
    found = tune_codes(documents[:100], documents[:10], np.arange(10), Whitening().fit(documents), 4, codes=["pq"])
    assert "at least 256 documents" in found.left_out["pq"]
    assert found.best.code == "spectrum"
