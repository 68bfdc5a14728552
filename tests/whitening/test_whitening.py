"""Whitening: the method's formula as a property, hard inputs, one fit for every setting, files."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxwhiten.errors import InputError, NonFiniteError, NotFittedError
from jaxwhiten.whitening import normalize
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning
from tests.conftest import slow_but

SOME = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Small samples are what these tests are made of; the warning has its own tests.
pytestmark = pytest.mark.filterwarnings(
    "ignore:A whitening .* columns was fitted on:jaxwhiten.whitening.whitening.WhiteningWarning"
)


def sample(n, d, offset=0.0, spread=10.0, seed=0, dtype=np.float64):
    """Correlated rows whose standard deviations span a factor `spread`, with a mean `offset` times their size."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = rng.standard_normal((n, d)) * np.geomspace(1, 1 / spread, d) @ rotation
    return (X + offset * rng.standard_normal(d)).astype(dtype)


def plain(X, k=None, beta=1.0, gamma=1.0):
    """The method in a few lines of numpy, float64."""
    X = np.asarray(X, np.float64)
    mean = X.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(X, rowvar=False, ddof=0).reshape(X.shape[1], -1))
    values, vectors = values[::-1], vectors[:, ::-1]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])
    return ((X - beta * mean) @ (vectors * values ** (-gamma / 2)))[:, :k]


shapes = st.tuples(
    st.sampled_from([1, 2, 5, 8]), st.integers(3, 40), st.sampled_from([0.0, 1.0, 1000.0]), st.integers(0, 10**6)
)
knobs = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)


@SOME
@given(shapes, knobs, knobs, st.data())
def test_equals_the_formula_and_its_inverse_the_nearest_rows(shape, beta, gamma, data):
    d, extra, offset, seed = shape
    k = data.draw(st.none() | st.integers(1, d), "k")
    X = sample(10 * d + extra, d, min(offset, 10), seed=seed)
    fitted = Whitening(k, beta, gamma)
    found, expected = fitted.fit_transform(X), plain(X, k, beta, gamma)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())
    assert fitted.rank_ == d
    if beta == gamma == 1:
        assert np.abs(np.cov(found, rowvar=False, ddof=0) - np.eye(found.shape[1])).max() < 1e-6
    U, mean = fitted.components_[:, :k], beta * fitted.mean_
    back = fitted.inverse_transform(found)
    np.testing.assert_allclose(back, (X - mean) @ U @ U.T + mean, atol=1e-6 * (1 + np.abs(X).max()))
    W, bias = fitted.kernel
    np.testing.assert_allclose(X @ W + bias, found, atol=1e-4 * (1 + np.abs(X).max() * np.abs(W).max()))


@SOME
@given(shapes, st.lists(st.integers(0, 60), max_size=4))
def test_a_fit_is_that_of_all_rows_in_any_split_and_forgets_earlier_ones(shape, cuts):
    d, extra, offset, seed = shape
    X = sample(3 * d + extra, d, offset, seed=seed)
    whole, parts = Whitening().partial_fit(X + 5).fit(X), Whitening()
    for block in np.split(X, sorted(min(c, len(X)) for c in cuts)):
        if len(block) or hasattr(parts, "n_samples_seen_"):
            parts.partial_fit(block)
    assert parts.n_samples_seen_ == whole.n_samples_seen_ == len(X)
    cosines = [normalize(np.asarray(fitted.transform(X), np.float64)) for fitted in (parts, whole)]
    np.testing.assert_allclose(*(unit @ unit.T for unit in cosines), atol=1e-6)
    again = Whitening.from_moments(Moments().update(X))
    np.testing.assert_allclose(again.transform(X), whole.transform(X))


DEFICIENT = {  # rank and rows
    "fewer rows": (9, sample(10, 30, offset=3.0)),
    "constant column": (5, np.insert(sample(200, 5, offset=3.0), 2, 0.1, axis=1)),
    "copied column": (5, sample(200, 5, offset=3.0)[:, [0, 1, 2, 3, 4, 0]]),
    "two rows": (1, sample(200, 5)[[0, 1] * 50]),
    "one row": (0, sample(1, 5)),
    "equal rows": (0, np.full((100, 5), 0.3)),
}


@pytest.mark.filterwarnings("ignore:. of 5 directions vary too little")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", DEFICIENT)
def test_rank_deficient_input_never_gives_nan(name, dtype):
    rank, X = DEFICIENT[name][0], DEFICIENT[name][1].astype(dtype)
    for shrinkage in (None, "oas", 0.5):
        for gamma in (0.0, 0.5, 1.0):
            fitted = Whitening(gamma=gamma, shrinkage=shrinkage).fit(X)
            assert fitted.rank_ == rank
            Z = fitted.transform(X)
            assert all(np.isfinite(each).all() for each in (Z, fitted.kernel[0], fitted.transform(np.ones_like(X))))
            if shrinkage is None and gamma == 1.0:
                assert np.abs(Z[:, rank:]).max(initial=0) < 0.5
                if rank:
                    assert np.abs(np.cov(Z[:, :rank].T.astype(float), ddof=0) - np.eye(rank)).max() < 1e-3


def test_one_fit_serves_every_setting(monkeypatch):
    X = sample(200, 6, offset=2.0)
    fitted = Whitening().fit(X)
    monkeypatch.setattr("jaxwhiten.whitening.whitening.eigen", lambda moments: pytest.fail("decomposed again"))
    for k, beta, gamma in ((None, 1.0, 0.0), (3, 0.0, 1.0), (1, 0.5, 0.3)):
        other = fitted.with_params(n_components=k, beta=beta, gamma=gamma)
        assert other.components_ is fitted.components_
        np.testing.assert_allclose(other.transform(X), plain(X, k, beta, gamma), atol=1e-7)
    assert fitted.get_params() == Whitening().get_params()
    shrunk = fitted.with_params(shrinkage=0.25)
    covariance = 0.75 * np.cov(X.T, ddof=0) + 0.25 * np.trace(np.cov(X.T, ddof=0)) / 6 * np.eye(6)
    np.testing.assert_allclose(shrunk.eigenvalues_, np.linalg.eigvalsh(covariance)[::-1])
    moved = fitted.with_mean(X[0])
    np.testing.assert_allclose(moved.transform(X), fitted.transform(X) - fitted.transform(X[:1]), atol=1e-7)
    prefix = fitted.transform(X)[:, :2]
    np.testing.assert_allclose(fitted.set_params(n_components=2).transform(X), prefix)


def test_warns_of_columns_without_information():
    X = np.concatenate([sample(100, 6)] * 2, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wide = Whitening().fit(np.tile(X, (2, 1)))
        wide.with_params(n_components=6)
    with pytest.warns(WhiteningWarning, match="rank of the data, 6"):
        wide.with_params(n_components=8)
    with pytest.warns(WhiteningWarning, match="Column 2 has"):
        assert Whitening().fit(sample(500, 4) * [1, 1, 1e9, 1]).rank_ == 1


PARAMETERS = [
    *({"n_components": value} for value in (0, 5, 2.0, True)),
    *({"beta": -0.1}, {"gamma": 1.5}, {"gamma": float("nan")}, {"eigenvalue_floor": "low"}),
    *({"shrinkage": 2}, {"shrinkage": "oass"}),
]


@pytest.mark.parametrize("params", PARAMETERS, ids=str)
def test_parameters_are_checked_wherever_they_are_set(params):
    X = sample(50, 4)
    fitted = Whitening().fit(X)
    for attempt in (
        lambda: Whitening().set_params(**params).fit(X),
        lambda: Whitening().set_params(**params).partial_fit(X),
        lambda: fitted.with_params(**params),
        lambda: Whitening.from_moments(Moments().update(X), **params),
        lambda: Whitening().fit(X).set_params(**params).transform(X),
    ):
        with pytest.raises(InputError, match="'oas'" if "oass" in params.values() else next(iter(params))):
            attempt()


FITTED = Whitening().fit(np.random.default_rng(0).normal(size=(50, 3)))
MISTAKES = {
    "a typo": (lambda: Whitening().set_params(gama=1), InputError, "'gamma'"),
    "no map": (lambda: Whitening().kernel, NotFittedError, "fit"),
    "no rank": (lambda: Whitening().rank_, NotFittedError, "fit"),
    "not fitted": (lambda: Whitening().transform(np.eye(2)), NotFittedError, "fit"),
    "no rows seen": (lambda: Whitening.from_moments(Moments()), InputError, "empty"),
    "no rows": (lambda: Whitening().fit(np.zeros((0, 3))), InputError, r"0 sample\(s\)"),
    "rows that underflow": (lambda: Whitening().fit(sample(500, 4) * 1e-155), InputError, "rescale"),
    "another width": (lambda: FITTED.transform(np.eye(4)), InputError, "3 features"),
    "another width, more": (lambda: FITTED.partial_fit(np.eye(4)), InputError, "3 features"),
    "a mean that is not finite": (lambda: FITTED.with_mean(np.full(3, np.nan)), InputError, "3 finite"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_misuse_is_refused(mistake):
    use, error, words = MISTAKES[mistake]
    with pytest.raises(error, match=words):
        use()
    assert not hasattr(Whitening(), "components_")


def test_a_refused_block_leaves_the_fit_as_it_was():
    X = sample(50, 3)
    for fitted in (Whitening().fit(X), Whitening().partial_fit(X)):
        before, bad = fitted.transform(X), X.copy()
        bad[7, 1] = np.nan
        with pytest.raises(NonFiniteError, match="Row 7 "):
            fitted.partial_fit(bad)
        assert fitted.n_samples_seen_ == 50
        np.testing.assert_array_equal(fitted.transform(X), before)


def test_files_pickles_and_copies_are_the_same_whitening(tmp_path):
    X, Y = sample(80, 5, offset=2.0), sample(60, 5, seed=3)
    fitted = Whitening(shrinkage="oas").set_params(n_components=np.int64(3), beta=np.float32(0.5)).fit(X)
    fitted.save(tmp_path / "w", {"model": "m", "n": "not this one"})
    loaded, expected = Whitening.load(tmp_path / "w"), fitted.transform(X)
    facts = loaded.provenance
    assert [facts[key] for key in ("model", "pooling", "n", "rank", "dimension")] == ["m", None, 80, 5, 5]
    assert facts["date"] == fitted.provenance["date"]
    assert facts["date"].endswith("+00:00")
    assert facts["version"]
    whole = Whitening(shrinkage="oas").fit(np.concatenate([X, Y]))
    for same in (loaded, copy.copy(fitted), copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert same.get_params() == fitted.get_params()
        np.testing.assert_array_equal(same.transform(X), expected)
        # It serves every setting, and more rows.
        wide = same.with_params(n_components=None, beta=1.0, gamma=0.5, shrinkage=None)
        np.testing.assert_allclose(wide.transform(X), plain(X, gamma=0.5), atol=1e-7)
        more = same.with_params(n_components=None, beta=1.0).partial_fit(Y)
        assert more.shrinkage_ == pytest.approx(whole.shrinkage_, rel=1e-9)
        np.testing.assert_allclose(more.transform(X), whole.transform(X))
        assert (same.n_samples_seen_, more.n_samples_seen_) == (80, 140)
    assert more.provenance["model"] is None
    np.testing.assert_array_equal(fitted.transform(X), expected)
    assert repr(Whitening(2, gamma=0.5)) == "Whitening(n_components=2, gamma=0.5)"


# It is an estimator by its methods alone, which scikit-learn warns of.
@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
@pytest.mark.filterwarnings("ignore:.*does not inherit from:UserWarning")
@pytest.mark.parametrize("params", slow_but([{}, {"beta": 0.5, "gamma": 0.5, "shrinkage": "oas"}], {}))
def test_it_is_an_estimator_of_scikit_learn(params):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    results = checks.check_estimator(Whitening(**params), on_skip=None, on_fail="raise")
    status = {result["check_name"]: result["status"] for result in results}
    assert len(status) > 40
    # Array API input is checked only where $SCIPY_ARRAY_API asks for it.
    assert {name for name, found in status.items() if found != "passed"} <= {"check_array_api_input"}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_normalize(dtype):
    X = sample(40, 6).astype(dtype)
    X[3] = 0
    before = X.copy()
    unit = normalize(X)
    assert unit.dtype == (np.float64 if dtype == np.float64 else np.float32)
    np.testing.assert_allclose(np.linalg.norm(np.delete(unit, 3, axis=0), axis=1), 1, atol=1e-6)
    assert not unit[3].any()
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(normalize(X.reshape(2, 20, 6)), unit.reshape(2, 20, 6))
    np.testing.assert_allclose(normalize(X[5]), unit[5], rtol=1e-6)
    assert normalize(X[:0]).shape == (0, 6)


@pytest.mark.parametrize("size", [2.0**-127, 1e-36, 1e-20, 1e20, 1e36])
def test_rows_at_the_ends_of_float32(size):
    """Below the smallest normal number of float32, XLA flushes to zero; rows and map are then taken in float64."""
    X = (sample(400, 6) * size).astype(np.float32)
    fitted = Whitening().fit(X)
    Z = fitted.transform(X)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(np.cov(Z, rowvar=False, ddof=0), np.eye(6), atol=1e-3)
