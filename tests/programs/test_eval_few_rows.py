"""Fits on few documents: what the rows of a run say, with a control without shrinkage."""

import numpy as np
import pytest

from configs.settings import FewRows
from eval import few_rows
from eval.runs import Run
from jaxwhiten import Moments
from tests.sentences import SENTENCES


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("few_rows")
    pairs = [(f"{a} {b}", f"{b} {a}") for a in SENTENCES for b in SENTENCES if a != b]
    (folder / "rows.tsv").write_text("query\tdocument\n" + "".join(f"{q}\t{d}\n" for q, d in pairs))
    config = FewRows()
    config.update({"model": str(tiny_model), "pooling": "mean", "dataset": str(folder / "rows.tsv"), "bootstrap": 50})
    config.update({"rows": "8,0", "bytes": "4,8", "gamma": "1", "held_out": 20, "cache": str(folder / "cache")})
    config.out = str(folder / "run")
    few_rows.main(config)
    return Run.load(folder / "run" / "run.jsonl")


def test_each_number_of_rows_has_every_size_and_whitening_with_its_control(run, tmp_path):
    settings = [(row.n_fit, row.bytes, row.gamma, row.shrinkage) for row in run.rows]
    every = max(n for n, *_ in settings)
    assert settings == [
        (n, size, gamma, shrinkage)
        for n in (8, every)
        for size, gamma in ((4, None), (8, None), (None, 1.0))
        for shrinkage in ("none", "oas" if gamma else "nonlinear")
    ]
    assert [row.versus is None for row in run.rows] == [shrinkage == "none" for *_, shrinkage in settings]
    assert {row.n_fit for row in run.rows if row.lost is None and row.bytes} == {every}
    assert all(0.3 < row.normal < 1.3 for row in run.rows if row.shrinkage == "nonlinear")
    tables = [table(run, run).text() for table in few_rows.TABLES.values()]
    assert all("8" in table and "→" in table for table in tables[:2])
    assert few_rows.draw(run, run, path=tmp_path / "plot.png").stat().st_size > 1000


def test_the_control_has_the_same_mean_and_covariance():
    rows = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    moments = Moments.of(rows)
    many = few_rows.of_many(moments)
    np.testing.assert_array_equal(many.mean, moments.mean)
    np.testing.assert_allclose(many.covariance(), moments.covariance())
    assert many.n > 10**9


def test_normal_vectors_have_the_mean_and_covariance_of_others():
    rows = np.random.default_rng(0).gamma(1, size=(30, 5)) * [1, 2, 3, 4, 5]
    normal = few_rows.normal_like(rows, 200_000, 0)
    np.testing.assert_allclose(normal.mean(axis=0), rows.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(np.cov(normal.T), np.cov(rows.T, ddof=0), rtol=0.02, atol=0.1)
