"""The aggregates of an STS task against scipy, and their intervals against a plain stratified bootstrap."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.aggregates import AGGREGATES, sts_resamples, sts_scores
from jaxwhiten.metrics.bootstrap import percentile_interval


def test_sts_scores_three_aggregates():
    rng = np.random.default_rng(1)
    subsets = ["z"] * 40 + ["a"] * 10 + ["z"] * 5 + ["m"] * 25
    gold = np.round(rng.uniform(0, 5, 80), 1)
    similarity = gold / 5 + rng.normal(scale=0.3, size=80) + np.array([0.5 * (s == "a") for s in subsets])
    scores = sts_scores(similarity, gold, subsets)
    by_subset = {
        name: 100 * spearmanr(similarity[[s == name for s in subsets]], gold[[s == name for s in subsets]]).statistic
        for name in ("z", "a", "m")
    }
    assert list(scores["subsets"]) == ["z", "a", "m"]
    assert scores["subsets"] == pytest.approx(by_subset)
    assert scores["mean"] == pytest.approx(sum(by_subset.values()) / 3)
    assert scores["wmean"] == pytest.approx((45 * by_subset["z"] + 10 * by_subset["a"] + 25 * by_subset["m"]) / 80)
    assert scores["all"] == pytest.approx(100 * spearmanr(similarity, gold).statistic)
    assert len({round(scores[name], 3) for name in AGGREGATES}) == 3


@pytest.fixture
def pairs():
    rng = np.random.default_rng(0)
    gold = np.round(rng.uniform(0, 5, 90), 0)
    similarity = np.round(np.stack([gold / 5 + s * rng.normal(size=90) for s in (0.2, 0.5, 2.0)]), 1)
    return similarity, gold, [f"s{i}" for i in rng.integers(0, 3, 90)]


def test_intervals_equal_a_plain_stratified_bootstrap(pairs):
    similarity, gold, subsets = pairs
    names = np.array(subsets)
    rng = np.random.default_rng(2)
    plain = {name: [] for name in AGGREGATES}
    for _ in range(2000):
        rows = np.concatenate(
            [rng.choice(np.flatnonzero(names == s), size=(names == s).sum()) for s in np.unique(names)]
        )
        scores = sts_scores(similarity[1][rows], gold[rows], names[rows].tolist())
        for name in plain:
            plain[name].append(scores[name])
    resamples = sts_resamples(similarity, gold, subsets, 4000, seed=3)
    for name, values in plain.items():
        low, high = np.quantile(values, [0.025, 0.975])
        spread = np.std(values)
        interval = percentile_interval(resamples[name][1])
        assert interval.low == pytest.approx(low, abs=0.25 * spread)
        assert interval.high == pytest.approx(high, abs=0.25 * spread)
