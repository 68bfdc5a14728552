"""The aggregates of an STS task against scipy, and their intervals against a plain stratified bootstrap."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.aggregates import AGGREGATES, sts_scores


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
