"""`python -m eval.codes` from question pairs to its table and plot; the figures held against plain NumPy."""

import numpy as np
import pytest

from configs import codes as settings
from eval import classification, codes, measure
from eval.runs import Run
from jaxwhiten import Encoder, Whitening, metrics, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.search import build_index
from tests.programs.test_eval_retrieval import generate
from tests.sentences import generated

pytestmark = pytest.mark.slow


def finished(folder, tiny_model, name, **changes):
    """A finished run of few bytes and queries."""
    config, out = settings.get_config(), folder / "runs" / name
    config.update({"model": str(tiny_model), "dataset": str(folder / "pairs.tsv"), "queries": 50, "rescore": 0})
    config.update({"bytes": "4", "codes": "spectrum", "pooling": "mean", "seeds": 1, "bootstrap": 100})
    config.update({"cache": str(folder / "cache"), "out": str(out)} | changes)
    codes.main(config)
    return Run.load(out)


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """A folder with a finished run, runs/tiny."""
    folder = tmp_path_factory.mktemp("codes")
    text = folder / "text.txt"
    text.write_text("".join(f"{passage.capitalize()}. More of it.\n" for passage in generated(400)))
    generate(folder / "pairs.tsv", 500)
    changes = {"outside": str(text), "bytes": "4,8", "codes": "spectrum,pq,scalar,ubinary", "rescore": 20}
    finished(folder, tiny_model, "tiny", queries=100, gamma="none", **changes)
    return folder


def test_the_rows(folder):
    run = Run.load(folder / "runs" / "tiny")
    settings = [(row.whitening, row.code, row.bytes) for row in run.rows]
    of_fit = [("spectrum", 4), ("spectrum", 8), ("pq", 4), ("pq", 8), ("scalar", 4), ("scalar", 8), ("ubinary", 4)]
    fits = ("documents", "outside")
    expected = [(fit, code, size) for fit in fits for code, size in of_fit]
    assert settings == [("none", "float32", 128), *expected]
    assert run.header.complete
    assert all(row.versus_raw.low <= row.versus_raw.value <= row.versus_raw.high for row in run.rows[1:])
    difference = 100 * (run.rows[1].mrr_at_10 - run.rows[0].mrr_at_10)
    assert run.rows[1].versus_raw.value == pytest.approx(difference, abs=1e-9)
    spectra = {(row.whitening, row.bytes): row.mrr_at_10 for row in run.rows if row.code == "spectrum"}
    for row in run.rows:
        if row.code in ("spectrum", "float32"):
            assert row.versus_spectrum is None
            assert row.code == "float32" or 0 < row.bound < row.distortion < 1
        else:
            lead = 100 * (row.mrr_at_10 - spectra[row.whitening, row.bytes])
            assert row.versus_spectrum.low <= row.versus_spectrum.value <= row.versus_spectrum.high
            assert row.versus_spectrum.value == pytest.approx(lead, abs=1e-9)


def test_a_code_is_held_against_a_spectrum_code_of_no_fewer_bytes():
    four, eight = np.zeros(3), np.ones(3)
    of_spectrum = {4: four, 8: eight}
    ranks = [codes.at_equal_bytes(size, of_spectrum) for size in (3, 4, 5, 8, 9)]
    assert [id(x) for x in ranks] == [id(x) for x in (four, four, eight, eight, None)]


def test_the_figures_are_those_of_plain_numpy(folder, tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)
    data = codes.load_search(str(folder / "pairs.tsv"), None)
    scored = np.flatnonzero(np.diff(data.gold.indptr))
    chosen = scored[np.linspace(0, len(scored) - 1, 100).astype(int)]
    documents, queries = encoder.encode(data.documents), encoder.encode([data.queries[i] for i in chosen])
    gold = [set(data.gold.ids[slice(*data.gold.indptr[i : i + 2])]) for i in chosen]
    documents, query_vectors = (normalize(np.asarray(x)) for x in (documents, queries))
    decoded = SpectrumCode(bytes=8).fit(documents).transform(documents)
    nearest, exact = (
        np.argsort(-query_vectors @ x.T, axis=1, kind="stable")[:, :10] for x in (normalize(decoded), documents)
    )
    ranks = [
        next((1 / (i + 1) for i, d in enumerate(row) if d in right), 0.0)
        for row, right in zip(nearest, gold, strict=True)
    ]
    run = Run.load(folder / "runs" / "tiny")
    (row,) = [row for row in run.rows if (row.whitening, row.code, row.bytes) == ("documents", "spectrum", 8)]
    assert row.mrr_at_10 == pytest.approx(np.mean(ranks), abs=0.01)  # documents of equal codes are ties
    shared = [len({*a} & {*b}) / 10 for a, b in zip(nearest, exact, strict=True)]
    assert row.float32_recall_at_10 == pytest.approx(np.mean(shared), abs=0.02)
    assert run.rows[0].gamma is None


def test_scores_of_a_spectrum_code_are_means_over_seeds(folder, tiny_model):
    run = finished(folder, tiny_model, "seeds", gamma="0.5", seeds=2)
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)
    _, queries, gold = measure.sample_queries(codes.load_search(str(folder / "pairs.tsv"), None), 50)
    documents = encoder.encode(codes.load_search(str(folder / "pairs.tsv"), None).documents)
    means = []
    for seed in (0, 1):
        code = SpectrumCode(bytes=4)
        code._seed = seed
        whitening = Whitening(gamma=0.5).fit(documents)
        index = build_index(documents, "faiss-flat", codes=code.fit(whitening), whitening=whitening)
        means.append(metrics.reciprocal_ranks(index.search(encoder.encode(queries), 10)[1], gold, 10).mean())
    assert means[0] != means[1]
    assert run.rows[1].mrr_at_10 == pytest.approx(np.mean(means), abs=0.01)


def test_every_gamma_has_a_row(folder, tiny_model):
    rows = finished(folder, tiny_model, "gamma", gamma="none,0.5,1").rows
    assert [row.gamma for row in rows if row.code == "spectrum"] == [None, 0.5, 1.0]
    assert len({row.mrr_at_10 for row in rows[1:]}) == 3


def test_logistic_regression_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x, label = rng.standard_normal((300, 6)), rng.integers(0, 3, 300)
    x[np.arange(300), label] += 1
    weights = classification.fit(x, label, 0.1)
    peer = LogisticRegression(C=1 / (300 * 0.1), tol=1e-8).fit(x, label)
    np.testing.assert_allclose(weights[:-1] - weights[:-1].mean(1, keepdims=True), peer.coef_.T, atol=1e-3)
    np.testing.assert_array_equal(classification.predict(x, weights), peer.predict(x))


@pytest.mark.slow
def test_accuracies_are_in_the_rows_and_their_table(folder, tiny_model, real_data):
    changes = {"codes": "spectrum,ubinary", "classify": "MRPC", "data_dir": str(real_data)}
    rows = finished(folder, tiny_model, "pairs", **changes).rows
    assert all(0 < row.accuracy["MRPC"].low <= row.accuracy["MRPC"].value <= 100 for row in rows)
    assert [row.code for row in rows] == ["float32", "spectrum", "ubinary"]
