"""`metrics.bootstrap`: each resample equals a plain computation, and the intervals are those of a plain bootstrap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from jaxwhiten import metrics
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import bootstrap


@pytest.fixture
def pairs():
    rng = np.random.default_rng(0)
    gold = np.round(rng.uniform(0, 5, 90), 0)
    similarity = np.round(np.stack([gold / 5 + s * rng.normal(size=90) for s in (0.2, 0.5, 2.0)]), 1)
    return similarity, gold, [f"s{i}" for i in rng.integers(0, 3, 90)]


def intervals(similarity, gold, subsets, **how):
    drawn = bootstrap.spearman_resamples(similarity[None], gold, subsets, **how)
    return {name: bootstrap.percentile_interval(samples[0]) for name, samples in drawn.items()}


def expand(counts, values):
    return np.repeat(values, counts.astype(int))


def test_ranks_of_a_resample_are_those_of_its_drawn_pairs(pairs):
    """The count form against scipy on the expanded resample, ties and all."""
    similarity, gold, subsets = pairs
    group = np.sort(np.unique(subsets, return_inverse=True)[1])
    rng = np.random.default_rng(1)
    sizes = np.bincount(group)
    counts = np.concatenate([rng.multinomial(s, np.full(s, 1 / s), size=5) for s in sizes], axis=1).T
    for labels in (group, np.zeros_like(group)):
        found = bootstrap._correlations(
            jnp.asarray(counts, jnp.float32), jax.device_put(bootstrap._grouping(similarity, gold, labels))
        )
        for m in range(3):
            for g in range(labels.max() + 1):
                rows = labels == g
                for b in range(5):
                    x, y = (expand(counts[rows, b], v[rows]) for v in (similarity[m], gold))
                    assert float(found[m, g, b]) == pytest.approx(spearmanr(x, y).statistic, abs=1e-5)


def test_intervals_equal_a_plain_stratified_bootstrap(pairs):
    similarity, gold, subsets = pairs
    names = np.array(subsets)
    rng = np.random.default_rng(2)
    plain = {name: [] for name in metrics.AGGREGATES}
    for _ in range(2000):
        rows = np.concatenate(
            [rng.choice(np.flatnonzero(names == s), size=(names == s).sum()) for s in np.unique(names)]
        )
        scores = metrics.sts_scores(similarity[1][rows], gold[rows], names[rows].tolist())
        for name in plain:
            plain[name].append(scores[name])
    found = intervals(similarity[1], gold, subsets, n_resamples=4000, seed=3)
    for name, values in plain.items():
        low, high = np.quantile(values, [0.025, 0.975])
        spread = np.std(values)
        assert found[name].low == pytest.approx(low, abs=0.25 * spread)
        assert found[name].high == pytest.approx(high, abs=0.25 * spread)


def test_settings_share_their_resamples(pairs):
    similarity, gold, subsets = pairs
    together = bootstrap.spearman_resamples(similarity, gold, subsets, 300, seed=4)
    assert together["all"].shape == (3, 300)
    for m in range(3):
        alone = bootstrap.spearman_resamples(similarity[m : m + 1], gold, subsets, 300, seed=4)
        for name in metrics.AGGREGATES:
            np.testing.assert_allclose(alone[name][0], together[name][m], atol=1e-4)
    other = bootstrap.spearman_resamples(similarity, gold, subsets, 300, seed=5)
    assert not np.allclose(other["all"], together["all"])


def test_many_blocks_are_all_different_draws(pairs, monkeypatch):
    similarity, gold, subsets = pairs
    monkeypatch.setattr(bootstrap, "_BLOCK_ELEMENTS", 90 * 16)
    samples = bootstrap.spearman_resamples(similarity, gold, subsets, 50)["all"]
    assert samples.shape == (3, 50)
    assert len(np.unique(samples[1])) > 45


def test_constant_similarity_gives_nan_intervals(pairs):
    _, gold, subsets = pairs
    found = intervals(np.ones(90), gold, subsets, n_resamples=20)
    assert all(np.isnan(interval).all() for interval in found.values())


@pytest.mark.slow
def test_coverage_of_the_interval():
    """95 % intervals hold the true correlation about 95 % of the time."""
    rho = 0.6
    truth = 100 * 6 / np.pi * np.arcsin(rho / 2)  # Spearman of a bivariate normal
    rng = np.random.default_rng(6)
    inside = 0
    for trial in range(200):
        x, z = rng.normal(size=(2, 150))
        y = rho * x + np.sqrt(1 - rho**2) * z
        low, high = intervals(x, y, ["a"] * 150, n_resamples=400, seed=trial)["all"]
        inside += low <= truth <= high
    assert 178 <= inside <= 199


def test_refusals(pairs):
    similarity, gold, subsets = pairs
    with pytest.raises(InputError, match="subset names"):
        bootstrap.spearman_resamples(similarity, gold, subsets[:-1])
    with pytest.raises(InputError, match="Nothing to resample"):
        bootstrap.spearman_resamples(similarity, gold, subsets, 0)
    with pytest.raises(InputError, match="at least one"):
        bootstrap.mean_resamples(np.zeros((1, 0)))
