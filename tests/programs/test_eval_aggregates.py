"""The aggregates of an STS task against scipy, and their intervals against a plain stratified bootstrap."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.aggregates import AGGREGATES, sts_resamples, sts_scores
from jaxwhiten.errors import InputError
from jaxwhiten.metrics.bootstrap import percentile_interval


def test_sts_scores_three_aggregates():
    rng = np.random.default_rng(1)
    subsets = ["z"] * 40 + ["a"] * 10 + ["z"] * 5 + ["m"] * 25
    gold = np.round(rng.uniform(0, 5, 80), 1)
    similarity = gold / 5 + rng.normal(scale=0.3, size=80) + np.array([0.5 * (s == "a") for s in subsets])
    found = sts_scores(similarity, gold, subsets)
    each = {
        name: 100 * spearmanr(similarity[[s == name for s in subsets]], gold[[s == name for s in subsets]]).statistic
        for name in ("z", "a", "m")
    }
    assert list(found["subsets"]) == ["z", "a", "m"]
    assert found["subsets"] == pytest.approx(each)
    assert found["mean"] == pytest.approx(sum(each.values()) / 3)
    assert found["wmean"] == pytest.approx((45 * each["z"] + 10 * each["a"] + 25 * each["m"]) / 80)
    assert found["all"] == pytest.approx(100 * spearmanr(similarity, gold).statistic)
    assert len({round(found[name], 3) for name in AGGREGATES}) == 3


def test_sts_scores_of_an_undefined_subset():
    found = sts_scores(np.arange(6.0), np.array([1.0, 1, 1, 0, 1, 2]), ["a"] * 3 + ["b"] * 3)
    assert math.isnan(found["subsets"]["a"])
    assert found["subsets"]["b"] == pytest.approx(100)
    assert math.isnan(found["mean"])
    assert math.isnan(found["wmean"])
    assert math.isfinite(found["all"])


def test_sts_scores_refuses_what_does_not_fit():
    with pytest.raises(InputError, match="subset names"):
        sts_scores(np.arange(3.0), np.arange(3.0), ["a"])
    with pytest.raises(InputError, match="No scored pairs"):
        sts_scores(np.zeros(0), np.zeros(0), [])


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
    drawn = sts_resamples(similarity, gold, subsets, 4000, seed=3)
    for name, values in plain.items():
        low, high = np.quantile(values, [0.025, 0.975])
        spread = np.std(values)
        found = percentile_interval(drawn[name][1])
        assert found.low == pytest.approx(low, abs=0.25 * spread)
        assert found.high == pytest.approx(high, abs=0.25 * spread)


def test_a_constant_subset_has_no_mean(pairs):
    _, gold, subsets = pairs
    drawn = sts_resamples(np.ones((1, 90)), gold, subsets, 20, seed=0)
    assert all(np.isnan(samples).all() for samples in drawn.values())
    with pytest.raises(InputError, match="subset names"):
        sts_resamples(np.ones((1, 90)), gold, subsets[:-1], 20, seed=0)
