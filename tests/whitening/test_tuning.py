"""The grid in one pass equals transforming and scoring setting by setting; warnings come when whitening harms."""

import numpy as np
import pytest

from jaxwhiten import Whitening
from jaxwhiten.errors import InputError, NonFiniteError, NotFittedError
from jaxwhiten.metrics.bootstrap import percentile_interval, spearman_resamples
from jaxwhiten.metrics.scores import cosine_pairs, spearman
from jaxwhiten.whitening.tuning import GRID, ScoredPairs, tune


def make(n, d=24, noise=1.0, scale=None, seed=0):
    """Pairs whose similarity lies in evenly scaled directions; `scale` hides it under uneven ones and a mean."""
    rng = np.random.default_rng(seed)
    scale = np.linspace(5, 0.2, d) ** 2 if scale is None else scale
    a = rng.normal(size=(n, d))
    share = rng.uniform(0, 1, size=(n, 1))
    b = share * a + np.sqrt(1 - share**2) * rng.normal(size=(n, d))
    shift = 3 * np.ones(d) * (scale.std() > 0)
    gold = share[:, 0] + 0.1 * noise * rng.normal(size=n)
    return ScoredPairs(*((x * scale + shift).astype(np.float32) for x in (a, b)), gold)


@pytest.fixture(scope="module")
def pairs():
    return make(400)


@pytest.fixture(scope="module")
def whitening(pairs):
    return Whitening(n_components=10, beta=0.3, gamma=0.6).fit(np.concatenate([pairs.first, pairs.second]))


def by_hand(whitening, pairs, k, beta, gamma):
    one = whitening.with_params(n_components=k, beta=float(beta), gamma=float(gamma))
    a, b = (one.transform(x.astype(np.float64)) for x in pairs[:2])
    return 100 * spearman(cosine_pairs(a, b), pairs.gold)


def test_every_cell_is_that_setting_scored_alone(whitening, pairs):
    held = make(150, seed=1)
    found = tune(whitening, pairs, held_out=held, ks=[1, 7, 24], betas=[0, 0.5, 1], gammas=[0, 0.3, 1])
    assert len(found.rows) == 27
    for row in found.rows:
        assert row.score == pytest.approx(by_hand(whitening, pairs, *row[:3]), abs=1e-3)
        assert row.held_out == pytest.approx(by_hand(whitening, held, *row[:3]), abs=1e-3)
    assert found.own[:3] == (10, 0.3, 0.6)
    assert found.own.score == pytest.approx(by_hand(whitening, pairs, 10, 0.3, 0.6), abs=1e-3)
    raw = 100 * spearman(cosine_pairs(pairs.first, pairs.second), pairs.gold)
    assert found.baseline.score == pytest.approx(raw, abs=1e-3)
    untouched = next(row for row in found.rows if row[:3] == (24, 0, 0))
    assert untouched.score == pytest.approx(raw, abs=1e-3)


def test_the_best_is_the_best_and_whitening_finds_the_hidden_similarity(whitening, pairs):
    found = tune(whitening, pairs, held_out=make(300, seed=2))
    assert found.best.score == max(row.score for row in found.rows)
    assert (found.best.beta, found.best.gamma) == (1, 1)
    assert found.best.score > found.baseline.score + 5
    assert found.best.held_out > found.baseline.held_out + 5
    assert len(found.warnings) == 1  # of the whitening's own, poor setting
    assert tune(whitening.with_params(n_components=None, beta=1.0, gamma=1.0), pairs).warnings == ()
    assert len(found.rows) == len(GRID) ** 2 * 3  # k of 8, 16, 24


def test_shrinkage_and_floor_are_kept(whitening, pairs):
    shrunk = whitening.with_params(shrinkage=0.2, eigenvalue_floor=0.01)
    found = tune(shrunk, pairs, ks=[24], betas=[1], gammas=[1])
    assert found.best.score == pytest.approx(by_hand(shrunk, pairs, 24, 1, 1), abs=1e-3)
    assert found.best.score != pytest.approx(by_hand(whitening, pairs, 24, 1, 1), abs=1e-3)
    assert found.best.held_out is None


def test_it_warns_where_whitening_harms():
    pairs = make(400, scale=np.ones(24))
    noise = np.random.default_rng(3).normal(size=(1000, 24)) * np.linspace(0.05, 20, 24) + 40
    found = tune(Whitening().fit(noise), pairs, held_out=make(200, scale=np.ones(24), seed=4))
    assert "No setting of the grid beats" in found.warnings[0]
    assert "(k=24, β=1, γ=1) lowers the score" in found.warnings[1]


def test_a_gain_that_does_not_carry_over_is_told(whitening, pairs):
    other = make(200, scale=np.ones(24), seed=5)
    found = tune(whitening, pairs, held_out=other, betas=[1], gammas=[1])
    assert found.best.held_out < found.baseline.held_out
    assert "changes the held-out score by" in found.warnings[0]
    assert found.gains[-1].low < 0


def test_equal_scores_take_the_smaller_k(whitening):
    x = np.ones((2, 24), np.float32)
    opposite = ScoredPairs(x, x * [[1], [-1]], np.array([5, 0]))
    found = tune(whitening, opposite, ks=[4, 8], betas=[0], gammas=[0])
    assert "2 pairs are few" in found.warnings[0]
    assert [row.score for row in found.rows] == [100, 100]
    assert found.best.n_components == 4


def test_intervals_are_of_the_pairs_that_judge(whitening, pairs):
    held = make(150, seed=1)
    for judged, found in ((pairs, tune(whitening, pairs)), (held, tune(whitening, pairs, held_out=held))):
        raw = cosine_pairs(judged.first, judged.second)
        drawn = spearman_resamples(raw[None], judged.gold, [""] * len(raw))["all"][0]
        assert found.intervals[0] == pytest.approx(percentile_interval(drawn), abs=0.3)
        gain = found.best[-1 if judged is held else 3] - found.baseline[judged is held]
        assert found.gains[0] == (0, 0)
        assert found.gains[2].low < gain < found.gains[2].high
        assert found.gains[2].low > 2


@pytest.mark.parametrize("where", ["pairs", "held-out pairs"])
def test_scores_that_are_undefined_are_refused(whitening, pairs, where):
    same = pairs._replace(second=pairs.first)
    how = {"pairs": same} if where == "pairs" else {"pairs": pairs, "held_out": same}
    with pytest.raises(InputError, match="A score is undefined"):
        tune(whitening, **how)


def test_held_out_pairs_that_are_tuned_on_are_refused(whitening, pairs):
    copied = ScoredPairs(*(part.copy() for part in pairs))
    with pytest.raises(InputError, match="are the pairs to tune on"):
        tune(whitening, pairs, held_out=copied)


def test_large_sets_are_scored_in_blocks(whitening, pairs, monkeypatch):
    whole = tune(whitening, pairs)
    monkeypatch.setattr("jaxwhiten.whitening.tuning._BLOCK_ROWS", 77)
    assert tune(whitening, pairs).rows == whole.rows


def test_refusals(whitening, pairs):
    with pytest.raises(NotFittedError):
        tune(Whitening(), pairs)
    with pytest.raises(InputError, match="k=25: expected an integer from 1 to 24"):
        tune(whitening, pairs, ks=[25])
    with pytest.raises(InputError, match=r"beta=.*: expected"):
        tune(whitening, pairs, betas=[1.5])
    with pytest.raises(InputError, match="grid is empty"):
        tune(whitening, pairs, gammas=[])
    with pytest.raises(InputError, match="two different gold scores"):
        tune(whitening, pairs._replace(gold=np.ones(400)))
    with pytest.raises(InputError, match="400 gold scores, but 399 vectors"):
        tune(whitening, pairs._replace(second=pairs.second[1:]))
    with pytest.raises(InputError, match="expecting 24"):
        tune(whitening, pairs, held_out=pairs._replace(first=pairs.first[:, 1:]))
    broken = pairs.first.copy()
    broken[7, 2] = np.nan
    with pytest.raises(NonFiniteError, match="Row 7 of the pairs"):
        tune(whitening, pairs._replace(first=broken))
