"""Mutual proximity and local scaling, pair by pair in numpy, and what they are for: fewer hubs."""

import numpy as np
import pytest
from scipy.stats import norm

from jaxwhiten.errors import InputError
from jaxwhiten.methods import LocalScaling, MutualProximityGauss, make_method
from jaxwhiten.methods import hubness as module
from jaxwhiten.metrics import geometry

HUBNESS = ("local-scaling", "mutual-proximity-gauss")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    return rng.standard_normal((300, 10)) * np.linspace(2, 0.5, 10) + 0.4


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def pairs(rows):
    """Pairs of rows of the reference, of strangers, and of one each."""
    strangers = np.random.default_rng(4).standard_normal((60, 10)) + 0.4
    return np.concatenate([rows[:30], strangers[:30], rows[:30]]), np.concatenate([rows[30:60], strangers[30:]] * 2)[
        :90
    ]


def test_mutual_proximity_of_gaussians(rows, pairs):
    a, b = (unit(x) for x in pairs)
    reference = unit(rows)
    expected = []
    for x, y in zip(a, b, strict=True):
        distance = 1 - x @ y
        from_x, from_y = 1 - reference @ x, 1 - reference @ y
        expected.append(norm.sf(distance, from_x.mean(), from_x.std()) * norm.sf(distance, from_y.mean(), from_y.std()))
    found = MutualProximityGauss().fit(rows).similarity(*pairs)
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-9)


def test_very_near_pairs_are_still_told_apart():
    """Their probabilities round to 1 in float64; the logarithms do not round to 0."""
    reference = np.random.default_rng(6).standard_normal((2000, 150))
    x, other = np.eye(150)[:2]
    near = x + other * np.array([1e-1, 1e-2, 1e-3])[:, None]
    found = MutualProximityGauss().fit(reference).similarity(np.tile(x, (3, 1)), near)
    assert (np.exp(found) == 1).all()
    assert (np.diff(found) > 0).all()
    assert found[-1] < 0


@pytest.mark.parametrize("k", [1, 7])
def test_local_scaling(rows, pairs, k):
    a, b = (unit(x) for x in pairs)
    reference = unit(rows)

    def scale(x):
        distances = np.sort(np.linalg.norm(reference - x, axis=1))
        return distances[distances > 2e-3][k - 1]  # the vector itself is not its neighbour

    expected = [np.exp(-np.sum((x - y) ** 2) / (scale(x) * scale(y))) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(LocalScaling(k).fit(rows).similarity(*pairs), expected, atol=2e-5)


def test_being_in_the_reference_makes_no_difference(rows):
    """A vector is not its own neighbour; far apart, two are not each other's either."""
    a = rows[:20]
    b = -a + 0.1 * rows[20:40]
    without = LocalScaling(5).fit(rows[40:]).similarity(a, b)
    for i in range(20):
        both = np.concatenate([rows[40:], a[i : i + 1], b[i : i + 1]])
        joined = LocalScaling(5).fit(both).similarity(a[i : i + 1], b[i : i + 1])
        np.testing.assert_allclose(joined, without[i : i + 1], rtol=1e-4)


@pytest.mark.parametrize("name", HUBNESS)
def test_hubs_become_fewer(name):
    """Gaussian rows about a common centre: the rows nearest to the centre are hubs."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((200, 60)) + 0.15
    i, j = (index.ravel() for index in np.indices((200, 200)))
    similarity = make_method(name).fit(x).similarity(x[i], x[j]).reshape(200, 200)
    np.fill_diagonal(similarity, -np.inf)
    counts = np.bincount(np.argsort(-similarity, axis=1, kind="stable")[:, :5].ravel(), minlength=200)
    skewness = ((counts - counts.mean()) ** 3).mean() / counts.std() ** 3
    assert skewness < 0.8 * geometry.hubness(x, 5)


@pytest.mark.parametrize("name", HUBNESS)
def test_blocks_do_not_change_the_result(name, rows, pairs, monkeypatch):
    method = make_method(name).fit(rows)
    whole = method.similarity(*pairs)
    monkeypatch.setattr(module, "block_rows", lambda *_: 8)
    np.testing.assert_allclose(method.similarity(*pairs), whole, atol=1e-5)
    np.testing.assert_allclose(make_method(name).fit(rows).similarity(*pairs), whole, atol=1e-5)
    assert method.similarity(rows[:0], rows[:0]).shape == (0,)


def test_the_reference_is_a_uniform_sample_whatever_the_parts(rows):
    x = np.arange(2, 1002)[:, None] * np.array([[0.0, 1.0]]) + [[1.0, 0.0]]
    whole = LocalScaling(max_reference=100, seed=7).fit(x)
    parts = LocalScaling(max_reference=100, seed=7)
    for start in range(0, 1000, 90):
        parts.partial_fit(x[start : start + 90])
    np.testing.assert_array_equal(parts._fitted().state.reference, whole._fitted().state.reference)
    assert whole._fitted().state.reference.shape == (100, 2)
    chosen = np.sort(np.round(whole._fitted().state.reference[:, 1] / whole._fitted().state.reference[:, 0]))
    assert len(np.unique(chosen)) == 100
    assert 430 < chosen.mean() < 570
    other = LocalScaling(max_reference=100, seed=8).fit(x)
    assert not np.array_equal(other._fitted().state.reference, whole._fitted().state.reference)


def test_parameters_are_checked(rows):
    for wrong in ({"max_reference": 1}, {"seed": -1}, {"k": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            LocalScaling().set_params(**wrong).fit(rows)
    # Fewer references than k: the farthest sets the scale.
    few = LocalScaling(k=10).fit(rows[:4]).similarity(rows[10:20], rows[20:30])
    np.testing.assert_allclose(few, LocalScaling(k=4).fit(rows[:4]).similarity(rows[10:20], rows[20:30]))
