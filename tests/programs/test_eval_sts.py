"""`eval.sts`: the whole program on the sample with a tiny model, and every row against a plain NumPy form."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from configs import sample
from eval import sts as program
from eval.data import load_sts
from eval.runs import Run
from jaxwhiten import Encoder
from tests.sentences import generated
from tests.tiny import by_pooling

PREMISES, HYPOTHESES = generated(150), generated(150, seed=1)


def whiten(x, rows, row):
    """x̃ = (x − βμ) U Λ^(−γ/2), the first k columns, from the covariance of rows.

    Vectors out of a layer norm span less than their width; what float64 leaves in the other directions is noise, which
    the floor keeps from being blown up.
    """
    mean = rows.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    values, vectors = np.maximum(values[::-1], 1e-6 * values[-1]), vectors[:, ::-1]
    return (x - row.beta * mean) @ vectors[:, : row.k] * values[: row.k] ** (-row.gamma / 2)


def scores(a, b, pairs):
    cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    names = np.array(pairs.subset)
    subsets, sizes = np.unique(names, return_counts=True)
    by_subset = [100 * spearmanr(cosine[names == s], pairs.score[names == s]).statistic for s in subsets]
    whole = 100 * spearmanr(cosine, pairs.score).statistic
    return {"all": whole, "mean": np.mean(by_subset), "wmean": np.average(by_subset, weights=sizes)}


def test_every_row_equals_the_plain_form(tiny_model, tmp_path):
    (tmp_path / "nli").mkdir()
    rows = zip(PREMISES, HYPOTHESES, strict=True)
    lines = ["premise\thypothesis\tlabel", *(f"{premise}\t{hypothesis}\tneutral" for premise, hypothesis in rows)]
    (tmp_path / "nli" / "pairs_nli.tsv").write_text("\n".join(lines) + "\n")
    config = sample.get_config()
    config.update({"model": str(tiny_model), "data_dir": str(tmp_path), "out": str(tmp_path / "out")})
    config.update({"poolings": "mean,cls", "whitening": "none,target,nli", "ks": "0,8", "gamma": "1,0.5"})
    config.update({"methods": "shrunk-whitening", "baselines": "tfidf", "bootstrap": 200, "aggregate": "wmean"})
    program.main(config)
    found = Run.load(tmp_path / "out").rows

    settings = [("none", 0.0, 32)] + [(w, g, k) for w in ("target", "nli") for g in (1.0, 0.5) for k in (32, 8)]
    settings += [("shrunk-whitening", None, k) for k in (32, 8)]
    expected = [(pooling, *setting) for pooling in ("mean", "cls") for setting in settings]
    words = [("tfidf", name, None, found[0].k) for name in ("target", "nli")]
    assert [(row.pooling, row.whitening, row.gamma, row.k) for row in found] == [*words, *expected]

    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)
    pairs = load_sts("sts_sample").splits["test"]
    sides = {"a": pairs.sentence1, "b": pairs.sentence2, "nli": [*PREMISES, *HYPOTHESES]}
    vectors = {name: by_pooling(encoder, texts, ["mean", "cls"]) for name, texts in sides.items()}
    for row in found:
        task = row.tasks["sts_sample"]
        assert row.transductive == (row.whitening in ("target", "shrunk-whitening"))
        assert task.low < task.wmean < task.high
        if row.gamma is None:
            continue
        a, b, nli = (vectors[name][row.pooling].astype(np.float64) for name in sides)
        fitted_on = {"none": np.zeros((0, 32)), "target": np.concatenate([a, b]), "nli": nli}[row.whitening]
        assert task.n_fit == row.n_fit == len(fitted_on)
        if row.whitening != "none":
            a, b = (whiten(side, fitted_on, row) for side in (a, b))
        for aggregate, value in scores(a, b, pairs).items():
            assert task[aggregate] == pytest.approx(value, abs=0.02), row
