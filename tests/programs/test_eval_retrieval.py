"""`python -m eval.retrieval` from a file of question pairs to tables and plots."""

from types import SimpleNamespace

import numpy as np
import pytest

from configs import quora
from eval import measure, retrieval
from eval.data import read_quora
from eval.intervals import bootstrap_mean
from eval.runs import Run
from jaxwhiten import CrossEncoder, Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import discounted_gains, recalls, reciprocal_ranks
from tests.conftest import own_cache
from tests.programs.runs import write_questions


@pytest.fixture
def config(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    config = quora.get_config()
    config.update(
        {
            "model": str(tiny_model),
            "dataset": str(write_questions(tmp_path / "pairs.tsv", 400)),
            "poolings": "cls",
            "ks": "0,8",
            "backends": "faiss-ivf,faiss-flat",
            "exact_queries": 100,
            "single_queries": 5,
            "out": str(tmp_path / "out"),
        }
    )
    return config


def test_bootstrap_mean_matches_normal_theory():
    values = 1 / np.random.default_rng(0).integers(1, 11, size=5000)
    low, high = bootstrap_mean(values, 4000)
    error = values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_intervals_of_the_mrr_are_paired():
    rng = np.random.default_rng(0)
    raw = 1 / rng.integers(1, 11, 800)
    better = np.minimum(raw + 0.1 * (rng.random(800) < 0.3), 1)
    intervals = retrieval.intervals(better, raw, 2000, 0)
    assert intervals["mrr_interval"].low < better.mean() < intervals["mrr_interval"].high
    assert intervals["versus_raw"].value == pytest.approx((better - raw).mean())
    # The difference is far surer than either mean: its interval is that of a mean of paired differences.
    spread = intervals["versus_raw"].high - intervals["versus_raw"].low
    assert spread == pytest.approx(2 * 1.96 * (better - raw).std() / np.sqrt(800), rel=0.1)
    assert intervals["versus_raw"].low > 0


def test_scores_are_those_of_plain_numpy(config):
    config.update({"backends": "faiss-flat,jax", "whitening": "none,target,documents"})
    retrieval.main(config)
    data = read_quora(config.dataset)
    encoder = Encoder.from_pretrained(config.model, pooling="cls")
    documents, queries = (encoder.encode(texts).astype(np.float64) for texts in (data.documents, data.queries))
    fitted_on = {"target": np.concatenate([documents, queries]), "documents": documents}
    rows = Run.load(config.out).rows
    assert {row.whitening: (row.n_fit, row.transductive) for row in rows} == {
        "none": (0, False),
        "target": (len(documents) + len(queries), True),
        "documents": (len(documents), False),
    }
    for row in rows:
        d, q = documents, queries
        if row.whitening != "none":
            sample = fitted_on[row.whitening]
            values, vectors = np.linalg.eigh(np.cov(sample.T))
            # The layer norm leaves one direction empty: it is floored, as `Whitening` does.
            whitened = (vectors / np.sqrt(np.maximum(values, 1e-6 * values[-1])))[:, ::-1]
            d, q = ((x - sample.mean(axis=0)) @ whitened[:, : row.k] for x in (d, q))
        d, q = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (d, q))
        ranked = np.argsort(-(q @ d.T), axis=1)[:, :100]
        assert row.mrr_at_10 == pytest.approx(reciprocal_ranks(ranked, data.gold, 10).mean(), abs=2e-3)
        assert row.recall_at_100 == pytest.approx(recalls(ranked, data.gold, 100).mean(), abs=2e-3)


def test_times_are_milliseconds_a_query(monkeypatch):
    """By a clock that stands still but for a tenth of a second a search."""
    clock = [0.0]

    def search(*_, **__):
        clock[0] += 0.1

    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock[0])
    index = SimpleNamespace(search=search)
    assert measure.batched_seconds(index, np.zeros((5, 2)), 3) == pytest.approx(0.1)
    assert measure.single_milliseconds(search, range(5)) == pytest.approx((100.0, 100.0))


@pytest.mark.slow
def test_reranking_is_scored_on_the_same_queries_before_and_after(config, cross_encoder):
    config.update({"backends": "faiss-flat", "whitening": "none", "ks": "0", "bootstrap": 200})
    config.update({"rerank": str(cross_encoder), "rerank_depth": 5, "rerank_queries": 30})
    retrieval.main(config)
    finished = Run.load(config.out)
    reranked = finished.rows[0].reranked
    assert (reranked.depth, reranked.queries) == (5, 30)
    data = read_quora(config.dataset)
    encoder, model = Encoder.from_pretrained(config.model, pooling="cls"), CrossEncoder.from_pretrained(cross_encoder)
    documents, queries = (encoder.encode(texts, normalize_embeddings=True) for texts in (data.documents, data.queries))
    scored = np.flatnonzero(np.diff(data.gold.indptr))
    scored = scored[measure.sample_rows(len(scored), 30)]
    gold = [data.gold.ids[data.gold.indptr[i] : data.gold.indptr[i + 1]] for i in scored]
    first = np.argsort(-(queries[scored] @ documents.T), axis=1)[:, :5]
    pairs = [(data.queries[i], data.documents[j]) for i, row in zip(scored, first, strict=True) for j in row]
    scores = model.predict(pairs).reshape(first.shape)
    after = np.take_along_axis(first, np.argsort(-scores, axis=1), axis=1)
    for name, measured in (("mrr_at_10", reciprocal_ranks), ("ndcg_at_10", discounted_gains)):
        assert reranked.before[name] == pytest.approx(measured(first, gold).mean(), abs=1e-3)
        assert reranked.after[name] == pytest.approx(measured(after, gold).mean(), abs=1e-3)
        gain = reranked.gain[name]
        assert gain.value == pytest.approx(reranked.after[name] - reranked.before[name])
        assert gain.low <= gain.value <= gain.high
    assert reranked.ms > 0


def test_every_setting_has_its_row_and_a_second_run_encodes_nothing(config, capsys, monkeypatch):
    config.update({"whitening": "none,target,documents"})
    retrieval.main(config)
    first = Run.load(config.out)
    assert [(row.pooling, row.whitening, row.k, row.backend) for row in first.rows] == [
        ("cls", whitening, k, backend)
        for whitening, k in [("none", 32), *[(w, k) for w in ("target", "documents") for k in (32, 8)]]
        for backend in ("faiss-ivf", "faiss-flat")
    ]
    assert "MRR@10" in capsys.readouterr().out
    monkeypatch.setattr("jaxwhiten.encoding.store.together", lambda *_, **__: pytest.fail("encoded again"))
    retrieval.main(config)
    for a, b in zip(first.rows, Run.load(config.out).rows, strict=True):
        assert a.mrr_at_10 == b.mrr_at_10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backends": "faiss-ifv"}, "Did you mean 'faiss-ivf'"),
        ({"ks": "0,64"}, "64 is more than the 32 dimensions"),
    ],
)
def test_typos_are_answered_before_anything_is_encoded(config, change, message, monkeypatch):
    monkeypatch.setattr("jaxwhiten.encoding.store.together", lambda *_, **__: pytest.fail("encoded"))
    config.update(change)
    with pytest.raises(InputError, match=message):
        retrieval.main(config)


def test_recall_counts_ties_as_found():
    documents = np.eye(4, dtype=np.float32)[[0, 0, 0, 1, 2]]
    queries = np.eye(4, dtype=np.float32)[:1]
    exact = measure.Exact(documents, queries, 2, "jax")
    assert exact.recall(np.array([[2, 1]])) == 1
    assert exact.recall(np.array([[2, 3]])) == 0.5
    assert exact.recall(np.array([[-1, 2]])) == 0.5
