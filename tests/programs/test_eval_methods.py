"""`eval.sts` with methods beside whitening: their rows, geometry and cost, against plain numpy."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from configs import methods as config_of_methods
from configs import sample
from eval import sts as program
from eval.methods import METHODS
from eval.runs import Run
from jaxwhiten import Encoder
from jaxwhiten.datasets import load_sts
from tests.tiny import write_model

pytestmark = pytest.mark.slow

NAMES = ("centre", "random-projection", "shrunk-whitening")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-model")


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "methods"
    config = sample.get_config()
    changes = {"methods": ",".join(NAMES), "geometry": True, "poolings": "mean,cls", "ks": "0,8", "gamma": "1,0.5"}
    config.update({"model": str(model), "whitening": "none,target", "bootstrap": 50, "out": str(out), **changes})
    program.main(config)
    return Run.load(out), out


def test_rows_of_methods_stand_beside_those_of_whitening(finished):
    run, _ = finished
    settings = [(row.whitening, row.k) for row in run.rows if row.pooling == "mean"]
    whitened = [("none", 32)] + [("target", k) for _ in range(2) for k in (32, 8)]
    reducing = ("random-projection", "shrunk-whitening")
    of_methods = [(name, k) for name in NAMES for k in ((32, 8) if name in reducing else (32,))]
    assert settings == whitened + of_methods
    assert len(run.rows) == 2 * len(settings)
    for row in run.rows:
        if row.whitening in NAMES:
            assert row.beta is None
            assert row.transductive == (row.whitening != "random-projection")
            assert row.n_fit == row.tasks["sts_sample"].n_fit == 780
            assert 0 < row.fit_seconds < row.seconds
            assert row.bytes > 200
        assert row.tasks["sts_sample"].low < row.tasks["sts_sample"].high


def test_scores_and_geometry_are_those_of_numpy(finished, model):
    run, _ = finished
    pairs = load_sts("sts_sample").splits["test"]
    encoder = Encoder.from_pretrained(model, pooling="cls")
    a, b = (encoder.encode(side).astype(np.float64) for side in (pairs.sentence1, pairs.sentence2))
    mean = np.concatenate([a, b]).mean(axis=0)
    cosine = ((a - mean) * (b - mean)).sum(1) / np.linalg.norm(a - mean, axis=1) / np.linalg.norm(b - mean, axis=1)
    (row,) = [row for row in run.rows if (row.pooling, row.whitening) == ("cls", "centre")]
    expected = 100 * spearmanr(cosine, pairs.score).statistic
    assert row.tasks["sts_sample"].all == pytest.approx(expected, abs=0.02)

    unique = encoder.encode(sorted(set(pairs.sentence1) | set(pairs.sentence2))).astype(np.float64)
    values = np.linalg.eigvalsh(np.cov(unique.T))
    isoscore = (values.sum() ** 2 / (values**2).sum() - 1) / 31
    assert row.geometry.n == len(unique)
    assert row.geometry.isoscore == pytest.approx(isoscore, rel=1e-3)
    near = pairs.score >= 4
    unit = [(x - mean) / np.linalg.norm(x - mean, axis=1, keepdims=True) for x in (a, b)]
    distances = ((unit[0] - unit[1]) ** 2).sum(axis=1)[near]
    assert row.geometry.alignment == pytest.approx(distances.mean(), rel=1e-3)
    (raw,) = [row for row in run.rows if (row.pooling, row.whitening) == ("cls", "none")]
    assert raw.geometry.isoscore == pytest.approx(row.geometry.isoscore, rel=1e-3)
    assert raw.geometry.average_cosine > row.geometry.average_cosine
    whitened = [r for r in run.rows if (r.whitening, r.gamma, r.k) == ("target", 1.0, 8)]
    assert all(r.geometry.isoscore > 0.8 for r in whitened)


def test_the_config_names_every_method():
    names = set(config_of_methods.get_config().methods.split(","))
    # The others are settings of the whitening: γ = 1, γ = 0, and none.
    assert names == set(METHODS) - {"none", "whitening", "pca"}
    config = config_of_methods.get_config()
    assert set(config.gamma.split(",")) >= {"0", "1"}
    assert set(config.whitening.split(",")) == {"none", "target"}
