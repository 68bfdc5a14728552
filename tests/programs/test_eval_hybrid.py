"""Vectors, words and both: what the rows of a run say, and that a variant changes what it names."""

import numpy as np
import pytest

from configs.settings import Hybrid
from eval import hybrid
from eval.runs import Run
from jaxwhiten.search import words
from tests.sentences import SENTENCES


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrid")
    pairs = [(f"{b} {number}", f"{a} {b} {number}") for number, a in enumerate(SENTENCES) for b in SENTENCES[:4]]
    (folder / "rows.tsv").write_text("query\tdocument\n" + "".join(f"{q}\t{d}\n" for q, d in pairs))
    config = Hybrid()
    config.update({"model": str(tiny_model), "pooling": "mean", "dataset": str(folder / "rows.tsv"), "bootstrap": 50})
    config.update({"bytes": "0,8", "single_queries": 2, "cache": str(folder / "cache"), "out": str(folder / "run")})
    hybrid.main(config)
    return Run.load(folder / "run" / "run.jsonl")


def test_each_size_has_vectors_words_both_and_variants(run):
    methods = [hybrid.VECTORS, hybrid.WORDS, *hybrid.VARIANTS]
    assert [(row.bytes, row.method) for row in run.rows] == [(size, method) for size in (0, 8) for method in methods]
    alone, words_alone, both, *_ = run.rows
    assert alone.ndcg_versus.value == alone.worse == alone.loss == 0
    assert both.ndcg_versus.value == pytest.approx(both.ndcg_at_10.value - alone.ndcg_at_10.value)
    assert both.ndcg_versus.low <= both.ndcg_versus.value <= both.ndcg_versus.high
    assert words_alone.single_ms is None
    assert both.single_ms > 0
    assert run.rows[len(methods) + 1].ndcg_at_10 == words_alone.ndcg_at_10
    for table in hybrid.TABLES.values():
        assert len(table(run, run).rows) >= 4


def test_a_weight_of_words_is_between_vectors_and_both():
    cosines, scores = np.array([0.9, 0.5, 0.7]), np.array([0.0, 3.0, 1.0])
    np.testing.assert_allclose(hybrid._weighing(0)(cosines, scores), words.fused(cosines, np.zeros(3)))
    np.testing.assert_allclose(hybrid._weighing(1)(cosines, scores), words.fused(cosines, scores))
    assert hybrid._weighing(2)(cosines, scores)[1] > words.fused(cosines, scores)[1]
