"""Every measure against an independent numpy form, its known extremes, and IsoScore against its package."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval import geometry as g
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import InputError, NonFiniteError


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((300, 12)) * np.linspace(3, 0.2, 12) + 0.7


def isoscore(x):
    return g.isoscore_from_covariance(g._covariance(x))


def effective_rank(x):
    return g.effective_rank_from_covariance(g._covariance(x))


def isoscore_by_the_steps_of_the_paper(x):
    d = x.shape[1]
    variances = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2
    variances = variances * math.sqrt(d) / np.linalg.norm(variances)
    defect = np.linalg.norm(variances - 1) / math.sqrt(2 * (d - math.sqrt(d)))
    used = (d - defect**2 * (d - math.sqrt(d))) ** 2 / d**2
    return (d * used - 1) / (d - 1)


def test_isoscore_follows_the_paper(rows):
    assert isoscore(rows) == pytest.approx(isoscore_by_the_steps_of_the_paper(rows), abs=1e-12)


def test_isoscore_equals_its_package(rows):
    pytest.importorskip("torch")
    package = pytest.importorskip("IsoScore.IsoScore")
    for x in (rows, rows[:, :2], rows[:8]):
        assert isoscore(x) == pytest.approx(float(package.IsoScore(x)), abs=1e-5)
    sigma = np.cov(rows.T)
    assert g.isoscore_from_covariance(sigma) == pytest.approx(float(package.IsoScore_cov(sigma)), abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_isoscore_lies_between_0_and_1_and_sees_neither_scale_nor_place_nor_rotation(d, seed, scale):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((30, d)) * rng.uniform(0.1, 3, d)
    score = isoscore(x)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    assert -1e-12 <= score <= 1 + 1e-12
    assert isoscore(scale * x @ rotation + rng.standard_normal(d)) == pytest.approx(score, abs=1e-9)


def test_isoscore_extremes():
    line = np.outer(np.linspace(-1, 1, 20), [1.0, 2.0, 3.0])
    assert isoscore(line) == pytest.approx(0, abs=1e-12)
    assert isoscore(np.concatenate([np.eye(3), -np.eye(3)])) == pytest.approx(1, abs=1e-12)
    assert math.isnan(isoscore(np.ones((4, 3))))


def test_effective_rank_extremes(rows):
    assert effective_rank(np.concatenate([np.eye(5), -np.eye(5)])) == pytest.approx(5)
    assert effective_rank(np.outer(np.arange(9.0), [1.0, 2.0, 3.0])) == pytest.approx(1)
    # A hundred columns of rank twelve: null directions do not count.
    wide = rows @ np.random.default_rng(1).standard_normal((12, 100))
    singular = np.linalg.svd(wide - wide.mean(axis=0), compute_uv=False)[:12]
    p = singular / singular.sum()
    assert effective_rank(wide) == pytest.approx(math.exp(-(p * np.log(p)).sum()), rel=1e-6)
    assert math.isnan(effective_rank(np.ones((4, 3))))


def test_uniformity_is_over_all_pairs(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    i, j = np.triu_indices(len(unit), 1)
    potential = np.exp(-2 * ((unit[i] - unit[j]) ** 2).sum(axis=1))
    assert g.uniformity(rows) == pytest.approx(math.log(potential.mean()), abs=1e-5)
    assert g.uniformity(np.tile([[1.0, 2.0]], (10, 1))) == pytest.approx(0, abs=1e-5)
    assert g.uniformity(np.array([[1.0, 0.0], [-3.0, 0.0]])) == pytest.approx(-8, abs=1e-5)
    # A zero row lies at distance 1 from every direction.
    assert g.uniformity(np.array([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(-2, abs=1e-5)


def test_blocks_do_not_change_what_is_counted(rows, monkeypatch):
    whole = g.uniformity(rows), g.k_occurrence(rows, 5)
    monkeypatch.setattr(g, "_SIMILARITY_BYTES", 4 * 300 * 16)
    assert g.uniformity(rows) == pytest.approx(whole[0], abs=1e-5)
    np.testing.assert_array_equal(g.k_occurrence(rows, 5), whole[1])


def test_alignment(rows):
    other = rows + np.random.default_rng(1).standard_normal(rows.shape)
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, other))
    distance = np.sqrt(((a - b) ** 2).sum(axis=1))
    assert g.alignment(rows, other) == pytest.approx((distance**2).mean())
    assert g.alignment(rows, 3 * rows) == pytest.approx(0, abs=1e-12)


def test_k_occurrence_counts_neighbours(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :7]
    counts = np.bincount(nearest.ravel(), minlength=len(rows))
    np.testing.assert_array_equal(g.k_occurrence(rows, 7), counts)
    skewness = ((counts - counts.mean()) ** 3).mean() / counts.std() ** 3
    assert g.hubness(rows, 7) == pytest.approx(skewness)


def test_hubness_extremes(rows):
    # Points on a circle: each is neighbour of its two neighbours.
    angle = 2 * np.pi * np.arange(16) / 16
    assert g.hubness(np.stack([np.cos(angle), np.sin(angle)], axis=1), 2) == 0
    # A centre that all others point to.
    star = np.concatenate([np.eye(20), np.full((1, 20), 1.0)])
    assert g.hubness(star, 1) > 4


def test_geometry_gathers_all_and_samples_large_sets(rows):
    measures = g.geometry(rows)
    assert measures == {
        "n": 300,
        "isoscore": pytest.approx(isoscore(rows)),
        "average_cosine": pytest.approx(g.average_cosine(rows)),
        "effective_rank": pytest.approx(effective_rank(rows)),
        "uniformity": pytest.approx(g.uniformity(rows)),
        "hubness": pytest.approx(g.hubness(rows)),
    }
    sampled = g.geometry(rows, max_rows=100, seed=3)
    assert sampled["n"] == 100
    assert sampled["isoscore"] == pytest.approx(measures["isoscore"], abs=0.2)


@pytest.mark.parametrize("measure", [g.geometry, g.uniformity, g.hubness])
def test_input_is_checked(measure, rows):
    with pytest.raises(InputError, match="two rows"):
        measure(rows[:1])
    rows[7, 3] = np.nan
    with pytest.raises(NonFiniteError, match="Row 7"):
        measure(rows)


def test_average_cosine_is_the_mean_over_all_pairs():
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) + 1
    x[5] = 0
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    cosines = unit @ unit.T
    assert g.average_cosine(x) == pytest.approx(cosines[~np.eye(40, dtype=bool)].mean(), abs=1e-5)
    assert g.average_cosine(np.tile(x[:1], (9, 1))) == pytest.approx(1)


def test_partner_ranks_equal_those_by_counting():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5)).astype(np.float32)
    left, right = rng.integers(0, 40, (2, 30))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = {}
    for i, j in [*zip(left, right, strict=True), *zip(right, left, strict=True)]:
        if i != j:
            closer = sum(unit[i] @ unit[other] > unit[i] @ unit[j] for other in range(40) if other not in (i, j))
            expected[i] = min(expected.get(i, 40), 1 + closer)
    ranks = g.partner_ranks(x, left, right)
    assert ranks.tolist() == [expected[i] for i in sorted(expected)]
    equal = np.ones((4, 3), np.float32)
    assert g.partner_ranks(equal, np.array([0, 2]), np.array([1, 2])).tolist() == [3, 3], "ties count against it"


def test_measures_are_of_what_codes_stand_for(rows):
    code = SpectrumCode(bytes=2).fit(rows)
    codes = code.encode(rows)
    plain = np.asarray(codes)
    decoded, sides = code.decode(plain), (np.arange(10), np.arange(20, 30))
    np.testing.assert_array_equal(g.partner_ranks(codes, *sides), g.partner_ranks(decoded, *sides))
    assert g.geometry(codes) == g.geometry(decoded)
    for measure in (g.average_cosine, g.uniformity, lambda x: g.alignment(x, x[::-1])):
        assert measure(codes) == measure(decoded)
        with pytest.raises(InputError, match="without their code"):
            measure(plain)
