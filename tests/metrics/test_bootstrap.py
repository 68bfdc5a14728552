"""`metrics.bootstrap`: each resample equals a plain computation, and the intervals are those of a plain bootstrap."""

import itertools

import numpy as np
import pytest
from scipy.stats import spearmanr

from jaxwhiten.metrics import bootstrap


@pytest.fixture
def pairs():
    rng = np.random.default_rng(0)
    gold = np.round(rng.uniform(0, 5, 90), 0)
    similarity = np.round(np.stack([gold / 5 + s * rng.normal(size=90) for s in (0.2, 0.5, 2.0)]), 1)
    return similarity, gold


def drawn(similarity, gold, *how, **options):
    """Spearman's correlations in resamples of single pairs."""
    return bootstrap.resamples(bootstrap.correlations(similarity, gold), np.arange(len(gold)), *how, **options)


def test_ranks_of_a_resample_are_those_of_its_drawn_pairs(pairs):
    """The count form against scipy on the expanded resample, ties and all."""
    similarity, gold = pairs
    counts = next(bootstrap.draws(np.zeros(90), 5, seed=1))
    found = bootstrap.correlations(similarity, gold)(counts)
    for m in range(3):
        for b in range(5):
            x, y = (np.repeat(values, counts[:, b].astype(int)) for values in (similarity[m], gold))
            assert found[m, b] == pytest.approx(100 * spearmanr(x, y).statistic, abs=1e-4)


def test_every_group_is_drawn_from_on_its_own():
    groups = np.array([1.0, 0, 1, 1, 0, 2])
    counts = np.concatenate(list(bootstrap.draws(groups, 3000, seed=2)), axis=1)
    assert counts.shape == (6, 3000)
    for group in range(3):
        assert (counts[groups == group].sum(axis=0) == (groups == group).sum()).all()
    assert (counts[5] == 1).all()
    np.testing.assert_allclose(counts.mean(axis=1), 1, atol=0.05)
    np.testing.assert_allclose(counts[0].var(), 3 * (1 / 3) * (2 / 3), atol=0.05)


def test_settings_share_their_resamples(pairs):
    similarity, gold = pairs
    together = drawn(similarity, gold, 300, seed=4)
    np.testing.assert_array_equal([drawn(row[None], gold, 300, seed=4)[0] for row in similarity], together)
    assert not np.allclose(drawn(similarity, gold, 300, seed=5), together)


def test_many_blocks_are_all_different_draws(pairs, monkeypatch):
    similarity, gold = pairs
    monkeypatch.setattr(bootstrap, "_BLOCK_ELEMENTS", 90 * 16)
    samples = drawn(similarity, gold, 50)
    assert samples.shape == (3, 50)
    assert len(np.unique(samples[1])) > 45


def test_constant_similarity_gives_nan_intervals(pairs):
    assert np.isnan(bootstrap.percentile_interval(drawn(np.ones((1, 90)), pairs[1], 20)[0])).all()


def test_means_of_resamples_have_the_standard_error_of_a_mean():
    values = np.random.default_rng(7).normal(size=(2, 400))
    found = bootstrap.resamples(bootstrap.means(values), np.arange(400), 4000)
    np.testing.assert_allclose(found.mean(axis=1), values.mean(axis=1), atol=0.005)
    np.testing.assert_allclose(found.std(axis=1), values.std(axis=1) / 20, rtol=0.05)


def test_items_of_a_unit_are_drawn_together(pairs):
    """Rows that are there twice, as one unit, say no more than once."""
    similarity, gold = pairs
    units = np.repeat(np.arange(90), 2)
    more = similarity.repeat(2, axis=1)
    for once, twice in (
        (bootstrap.correlations(similarity, gold), bootstrap.correlations(more, gold.repeat(2))),
        (bootstrap.means(similarity), bootstrap.means(more)),
    ):
        alone = bootstrap.resamples(once, np.arange(90), 40)
        np.testing.assert_allclose(alone, bootstrap.resamples(twice, units, 40), atol=1e-4)


def test_intervals_of_several_hold_at_once():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(6, 1)) + rng.normal(size=(6, 4000))
    samples[2] = samples[3]
    found = np.array(bootstrap.chosen_intervals(samples))
    assert np.mean(((samples >= found[:, :1]) & (samples <= found[:, 1:])).all(axis=0)) == pytest.approx(0.95, abs=0.01)
    for row, (low, high) in zip(samples, found, strict=True):
        alone = bootstrap.percentile_interval(row)
        assert bootstrap.chosen_intervals(np.stack([row, row]))[1] == pytest.approx(alone, abs=0.02), "no choice"
        assert low < alone.low < alone.high < high
    few, many = (bootstrap.percentile_interval(samples[0], units) for units in (12, 10_000))
    assert few.low < many.low
    assert many == pytest.approx(bootstrap.percentile_interval(samples[0]), abs=0.01)
    assert np.isnan(bootstrap.percentile_interval(samples[0], 5)).all()
    samples[1] = np.nan
    found = bootstrap.chosen_intervals(samples)
    assert np.isnan(found[1]).all()
    assert np.isfinite([found[0], *found[2:]]).all()


@pytest.mark.parametrize("n", [1, 5, 11, 13, 600])
def test_the_p_value_of_sign_flips(n):
    """Exact for few parts; zeros, the signs of all, the order and a scale change nothing."""
    parts = np.round(np.random.default_rng(n).normal(0.2, 1, n), 1)
    found = bootstrap.flips(parts)
    far = abs(parts.sum()) - 1e-9
    if n < 12:
        signs = np.array(list(itertools.product([1, -1], repeat=n))).reshape(-1, n)
        assert found == np.mean(np.abs(signs @ parts) >= far)
    else:
        signs = np.random.default_rng(1).choice([1, -1], size=(5_000, n))
        assert found == pytest.approx(np.mean(np.abs(signs @ parts) >= far), abs=0.02)
    for same in (-parts, 3 * parts, np.append(parts, [0.0, 0.0])):
        assert bootstrap.flips(same) == found
    assert bootstrap.flips(parts[::-1]) == pytest.approx(found, abs=0.02)


def test_few_parts_of_one_sign_are_no_difference():
    """All of them up by chance in one of 16 cases; of 40 never."""
    for n, differs in ((5, False), (40, True)):
        parts = np.append(np.ones(n), np.zeros(300 - n))
        found = bootstrap.resamples(bootstrap.means(parts[None]), np.arange(300), 1000)
        assert bootstrap.chosen_intervals(found, 300)[0].low > 0
        assert (bootstrap.chosen_intervals(found, 300, parts[None])[0].low > 0) == differs
        assert (bootstrap.chosen_intervals(-found, 300, -parts[None])[0].high < 0) == differs


@pytest.mark.parametrize("value", [-100.0, 0.0, 50.0, 100.0])
def test_equal_scores_leave_room_for_others(value):
    few, many = (bootstrap.score_interval(np.full(100, value), units) for units in (10, 10_000))
    assert -100 <= few.low <= value <= few.high <= 100
    assert few.high - few.low > 25
    assert many == pytest.approx((value, value), abs=0.1)
