"""`python -m eval.retrieval` from a file of question pairs to tables and plots."""

import numpy as np
import pytest

from configs import quora
from eval import retrieval
from eval.data import read_quora
from eval.runs import Run
from jaxwhiten import Encoder
from jaxwhiten.metrics import recalls, reciprocal_ranks
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


@pytest.mark.slow
def test_reranking_is_scored_on_the_same_queries_before_and_after(config, cross_encoder):
    config.update({"backends": "faiss-flat", "whitening": "none", "ks": "0", "bootstrap": 200})
    config.update({"rerank": str(cross_encoder), "rerank_depth": 5, "rerank_queries": 30})
    retrieval.main(config)
    finished = Run.load(config.out)
    reranked = finished.rows[0].reranked
    assert (reranked.depth, reranked.queries) == (5, 30)
    assert reranked.gain.ndcg_at_10.value == pytest.approx(reranked.after.ndcg_at_10 - reranked.before.ndcg_at_10)
    assert reranked.ms > 0
