"""`python -m eval.retrieval` from a file of question pairs to tables and plots."""

import numpy as np
import pytest

from configs import quora
from eval import retrieval
from eval.data import read_quora
from eval.runs import Run
from jaxwhiten import Encoder
from jaxwhiten.metrics import recalls, reciprocal_ranks
from tests.programs.runs import write_questions


def test_scores_are_those_of_plain_numpy(tiny_model, cross_encoder, tmp_path, fresh_cache):
    file = write_questions(tmp_path / "pairs.tsv", 400)
    config = quora.get_config()
    config.update({"model": str(tiny_model), "dataset": str(file), "out": str(tmp_path / "out"), "poolings": "cls"})
    config.update({"ks": "0,8", "backends": "faiss-flat,faiss-ivf,jax", "whitening": "none,target,documents"})
    config.update({"exact_queries": 100, "single_queries": 5, "bootstrap": 50})
    config.update({"nprobe": 1000, "rerank": str(cross_encoder), "rerank_depth": 2, "rerank_queries": 10})
    retrieval.main(config)
    data = read_quora(file)
    encoder = Encoder.from_pretrained(tiny_model, pooling="cls")
    documents, queries = (encoder.encode(texts).astype(np.float64) for texts in (data.documents, data.queries))
    fitted_on = {"none": [], "target": np.concatenate([documents, queries]), "documents": documents}
    rows = Run.load(tmp_path / "out").rows
    assert {row.whitening for row in rows} == set(fitted_on)
    for row in rows:
        sample, d, q = fitted_on[row.whitening], documents, queries
        assert (row.n_fit, row.transductive) == (len(sample), row.whitening == "target")
        if row.whitening != "none":
            values, vectors = np.linalg.eigh(np.cov(sample.T))
            # The layer norm leaves one direction empty: it is floored, as `Whitening` does.
            whitened = (vectors / np.sqrt(np.maximum(values, 1e-6 * values[-1])))[:, ::-1]
            d, q = ((x - sample.mean(axis=0)) @ whitened[:, : row.k] for x in (d, q))
        d, q = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (d, q))
        ranked = np.argsort(-(q @ d.T), axis=1)[:, :100]
        assert row.mrr_at_10 == pytest.approx(reciprocal_ranks(ranked, data.gold, 10).mean(), abs=2e-3)
        assert row.recall_at_100 == pytest.approx(recalls(ranked, data.gold, 100).mean(), abs=2e-3)
        reranked = row.reranked
        assert (reranked.depth, reranked.queries) == (2, 10)
        assert reranked.gain.mrr_at_10.value == pytest.approx(reranked.after.mrr_at_10 - reranked.before.mrr_at_10)
