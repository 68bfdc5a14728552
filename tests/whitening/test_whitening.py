"""Whitening: the method's identities as properties, hard inputs, one fit for every setting, files, threads."""

import copy
import dataclasses
import pickle
import threading
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxwhiten import io
from jaxwhiten.errors import FormatError, InputError, NonFiniteError, NotFittedError
from jaxwhiten.options import WhiteningParameters
from jaxwhiten.whitening import normalize
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning

SOME = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


def cosines(Z):
    unit = normalize(np.asarray(Z, np.float64))
    return unit @ unit.T


shapes = st.tuples(
    st.sampled_from([1, 2, 5, 8]), st.integers(3, 40), st.sampled_from([0.0, 1.0, 1000.0]), st.integers(0, 10**6)
)


@SOME
@given(shapes)
def test_whitened_sample_has_zero_mean_and_identity_covariance(shape):
    d, extra, offset, seed = shape
    X = sample(2 * d + extra, d, offset, seed=seed)
    fitted = Whitening().fit(X)
    Z = fitted.transform(X)
    assert fitted.rank_ == d
    assert np.abs(Z.mean(axis=0)).max() < 1e-7
    assert np.abs(np.cov(Z, rowvar=False, ddof=0) - np.eye(d)).max() < 1e-6


@SOME
@given(shapes, st.floats(0, 1), st.floats(0, 1), st.data())
def test_equals_the_formula(shape, beta, gamma, data):
    d, extra, offset, seed = shape
    k = data.draw(st.none() | st.integers(1, d), "k")
    X = sample(10 * d + extra, d, min(offset, 10), seed=seed)
    found = Whitening(k, beta, gamma).fit_transform(X)
    expected = plain(X, k, beta, gamma)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())


@SOME
@given(shapes)
def test_beta_gamma_zero_leaves_cosines_unchanged(shape):
    d, extra, offset, seed = shape
    X = sample(2 * d + extra, d, offset, seed=seed)
    assert np.allclose(cosines(Whitening(beta=0.0, gamma=0.0).fit_transform(X)), cosines(X), atol=1e-9)


def test_inverse_of_fewer_columns_is_the_nearest_point_of_the_subspace():
    X = sample(200, 6, offset=2.0)
    fitted = Whitening(n_components=2).fit(X)
    back = fitted.inverse_transform(fitted.transform(X))
    U = fitted.components_[:, :2]
    assert np.allclose(back, (X - fitted.mean_) @ U @ U.T + fitted.mean_)


@SOME
@given(shapes, st.lists(st.integers(0, 60), max_size=4))
def test_any_split_over_partial_fits(shape, cuts):
    d, extra, offset, seed = shape
    X = sample(3 * d + extra, d, offset, seed=seed)
    whole, parts = Whitening().fit(X), Whitening()
    for block in np.split(X, sorted(min(c, len(X)) for c in cuts)):
        if len(block) or hasattr(parts, "n_samples_seen_"):
            parts.partial_fit(block)
    assert parts.n_samples_seen_ == len(X)
    assert np.allclose(cosines(parts.transform(X)), cosines(whole.transform(X)), atol=1e-6)
    again = Whitening.from_moments(Moments().update(X))
    assert np.allclose(again.transform(X), whole.transform(X))


def test_fit_forgets_and_partial_fit_adds():
    X, Y = sample(50, 3), sample(70, 3, offset=5.0, seed=1)
    assert np.allclose(Whitening().fit(Y).fit(X).mean_, X.mean(axis=0))
    assert Whitening().partial_fit(Y).fit(X).n_samples_seen_ == 50
    both = Whitening().fit(X).partial_fit(Y)
    joined = Whitening().fit(np.concatenate([X, Y]))
    assert np.allclose(both.eigenvalues_, joined.eigenvalues_)
    assert np.allclose(both.transform(X), joined.transform(X))


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
            assert np.isfinite(Z).all()
            assert np.isfinite(fitted.kernel[0]).all()
            assert np.isfinite(fitted.transform(np.ones_like(X))).all()
            if shrinkage is None and gamma == 1.0:
                assert np.abs(Z[:, rank:]).max(initial=0) < 0.5
                if rank:
                    assert np.abs(np.cov(Z[:, :rank].T.astype(float), ddof=0) - np.eye(rank)).max() < 1e-3


def test_rows_whose_squares_float64_does_not_hold_are_refused():
    with pytest.raises(InputError, match="squares underflow float64: rescale them"):
        Whitening().fit(sample(500, 4) * 1e-155)


def test_a_column_so_large_that_the_others_do_not_count_is_named():
    X = sample(500, 4) * [1, 1, 1e9, 1]
    with pytest.warns(WhiteningWarning, match=r"Column 2 has .* Rescale the columns, or remove outlying rows"):
        assert Whitening().fit(X).rank_ == 1


def test_floor_decides_rank_and_scale():
    X = sample(500, 4, spread=1000.0)
    low, high = Whitening().fit(X), Whitening(eigenvalue_floor=1e-3).fit(X)
    assert (low.rank_, high.rank_) == (4, 2)
    variances = high.transform(X).var(axis=0)
    expected = high.eigenvalues_ / np.maximum(high.eigenvalues_, 1e-3 * high.eigenvalues_[0])
    assert np.allclose(variances, expected, rtol=1e-6)
    with pytest.warns(WhiteningWarning, match="3 of 3 directions vary too little"):
        zeros = Whitening(eigenvalue_floor=0.0).fit(np.zeros((50, 3)))
    assert np.linalg.norm(zeros.transform(np.ones((1, 3)))) == pytest.approx(3**0.5)


def test_one_fit_serves_every_setting(monkeypatch):
    X = sample(200, 6, offset=2.0)
    fitted = Whitening().fit(X)
    monkeypatch.setattr("jaxwhiten.whitening.whitening.eigen", lambda moments: pytest.fail("decomposed again"))
    for k, beta, gamma in ((None, 1.0, 0.0), (3, 0.0, 1.0), (1, 0.5, 0.3), (6, 1.0, 1.0)):
        other = fitted.with_params(n_components=k, beta=beta, gamma=gamma)
        assert other.components_ is fitted.components_
        assert np.allclose(other.transform(X), plain(X, k, beta, gamma), atol=1e-7)
    assert fitted.get_params() == Whitening().get_params()
    shrunk = fitted.with_params(shrinkage=0.25)
    covariance = 0.75 * np.cov(X.T, ddof=0) + 0.25 * np.trace(np.cov(X.T, ddof=0)) / 6 * np.eye(6)
    assert np.allclose(shrunk.eigenvalues_, np.linalg.eigvalsh(covariance)[::-1])
    assert shrunk.shrinkage_ == 0.25
    prefix = fitted.transform(X)[:, :2]
    assert np.allclose(fitted.with_params(n_components=2).transform(X), prefix)
    fitted.set_params(n_components=2)
    assert np.allclose(fitted.transform(X), prefix)


def test_float32_keeps_its_digits_far_from_the_origin():
    X = sample(3000, 16, offset=1000.0, spread=3.0, dtype=np.float32)
    Z = Whitening().fit(X).transform(X)
    assert Z.dtype == np.float32
    assert np.abs(Z - plain(X)).max() < 1e-4


def test_threads_get_their_own_answers():
    blocks = [sample(64 + 8 * i, 6, offset=1.0, seed=i, dtype=np.float32 if i % 2 else np.float64) for i in range(8)]
    X = np.concatenate(blocks).astype(np.float64)
    expected = [Whitening().fit(X).transform(b) for b in blocks]
    fitted = Whitening().partial_fit(X)  # decomposed by whichever thread comes first
    found, errors = {}, []

    def work(i):
        try:
            for _ in range(10):
                found[i] = fitted.transform(blocks[i])
                assert np.allclose(found[i], expected[i], atol=1e-4)
                assert np.allclose(fitted.inverse_transform(found[i]), blocks[i], atol=1e-3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(np.allclose(found[i], expected[i], atol=1e-4) for i in range(8))


def test_warns_of_few_rows_and_of_columns_without_information():
    X = sample(50, 6)
    with pytest.warns(WhiteningWarning, match="50 rows, fewer than 10"):
        fitted = Whitening().fit(X)
    with pytest.warns(WhiteningWarning, match="fewer than 10"):
        Whitening().partial_fit(X).transform(X)
    X = np.concatenate([sample(100, 6)] * 2, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Whitening(n_components=3).fit(sample(60, 6))
        wide = Whitening().fit(np.tile(X, (2, 1)))
        wide.with_params(n_components=6)
        fitted.with_params(gamma=0.5)
    with pytest.warns(WhiteningWarning, match="more than the rank of the data, 6: the last 2"):
        wide.with_params(n_components=8)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 5}, "n_components=.*: expected an integer from 1 to 4"),
        ({"n_components": 2.0}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"beta": -0.1}, "beta"),
        ({"gamma": 1.5}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"eigenvalue_floor": "low"}, "eigenvalue_floor"),
        ({"shrinkage": 2}, "shrinkage"),
        ({"shrinkage": "oass"}, "Did you mean 'oas'"),
    ],
)
def test_parameters_are_checked(params, message):
    X = sample(50, 4)
    fitted = Whitening().fit(X)
    for attempt in (
        lambda: Whitening().set_params(**params).fit(X),
        lambda: Whitening().set_params(**params).partial_fit(X),
        lambda: fitted.with_params(**params),
        lambda: Whitening.from_moments(Moments().update(X), **params),
        lambda: Whitening().fit(X).set_params(**params).transform(X),
    ):
        with pytest.raises(InputError, match=message):
            attempt()


def test_misuse_is_refused():
    with pytest.raises(InputError, match="Did you mean 'gamma'"):
        Whitening().set_params(gama=1)
    for use in (lambda w: w.transform(np.eye(2)), lambda w: w.with_params(), lambda w: w.kernel, lambda w: w.rank_):
        with pytest.raises(NotFittedError):
            use(Whitening())
    assert not hasattr(Whitening(), "components_")
    with pytest.raises(InputError, match="empty"):
        Whitening.from_moments(Moments())
    with pytest.raises(InputError, match=r"0 sample\(s\)"):
        Whitening().fit(np.zeros((0, 3)))
    fitted = Whitening().fit(sample(50, 3))
    for use in (fitted.transform, fitted.inverse_transform, fitted.partial_fit):
        with pytest.raises(InputError, match="expecting 3 features"):
            use(np.eye(4))


def test_a_refused_block_leaves_the_fit_as_it_was():
    X = sample(50, 3)
    for fitted in (Whitening().fit(X), Whitening().partial_fit(X)):
        before = fitted.transform(X)
        bad = X.copy()
        bad[7, 1] = np.nan
        with pytest.raises(NonFiniteError, match="Row 7 "):
            fitted.partial_fit(bad)
        assert fitted.n_samples_seen_ == 50
        assert np.array_equal(fitted.transform(X), before)


def test_copies_are_independent():
    X = sample(50, 3)
    fitted = Whitening().fit(X)
    expected = fitted.transform(X)
    for other in (copy.copy(fitted), copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert np.allclose(other.transform(X), expected)
        other.set_params(gamma=0.0).partial_fit(X + 5)
        assert other.n_samples_seen_ == 100
    assert fitted.n_samples_seen_ == 50
    assert np.array_equal(fitted.transform(X), expected)
    assert repr(Whitening(2, gamma=0.5)) == "Whitening(n_components=2, gamma=0.5)"


def test_save_and_load(tmp_path):
    path = tmp_path / "w.safetensors"
    X = sample(80, 5, offset=2.0)
    fitted = Whitening(shrinkage="oas").set_params(n_components=np.int64(3), beta=np.float32(0.5)).fit(X)
    fitted.save(path, {"model": "m", "pooling": "cls"})
    back = Whitening.load(path)
    assert back.get_params() == fitted.get_params()
    assert np.array_equal(back.transform(X), fitted.transform(X))
    facts = back.provenance
    assert {k: facts[k] for k in ("model", "pooling", "n", "rank", "dimension")} == {
        "model": "m",
        "pooling": "cls",
        "n": 80,
        "rank": 5,
        "dimension": 5,
    }
    assert facts["date"].endswith("+00:00")
    assert facts["version"]
    assert facts["date"] == fitted.provenance["date"]
    # The file serves every setting, and more rows.
    wide = back.with_params(n_components=None, beta=1.0, gamma=0.5, shrinkage=None)
    assert np.allclose(wide.transform(X), plain(X, gamma=0.5), atol=1e-7)
    Y = sample(60, 5, seed=3)
    whole = Whitening(shrinkage="oas").fit(np.concatenate([X, Y]))
    more = back.with_params(n_components=None, beta=1.0).partial_fit(Y)
    assert more.shrinkage_ == pytest.approx(whole.shrinkage_, rel=1e-9)
    assert np.allclose(more.transform(X), whole.transform(X))
    assert more.provenance["model"] == "m"


def test_provenance_of_moments_is_handed_on(tmp_path):
    Moments().update(sample(60, 3)).save(tmp_path / "m", {"model": "m", "n": "not this one"})
    fitted = Whitening.from_moments(Moments.load(tmp_path / "m"), provenance={"pooling": "max"})
    assert fitted.provenance["model"] == "m"
    assert fitted.provenance["pooling"] == "max"
    assert fitted.provenance["n"] == 60
    assert Whitening().fit(sample(60, 3)).provenance["model"] is None


def put(name, index, value):
    def change(tensors, header):
        tensors[name][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("mean", 0, np.inf), "NaN"),
        (put("components", (0, 0), np.nan), "NaN"),
        (put("components", (0, 0), 5.0), "squared lengths"),
        (put("eigenvalues", 0, 0.0), "not descending"),
        (put("eigenvalues", -1, -1.0), "eigenvalues: -1.0, expected a number of at least 0"),
        (put("n", 0, 0), "n: 0, expected"),
        (lambda t, h: t.update(mean=np.zeros(4)), "shapes"),
        (lambda t, h: t.update(components=np.zeros((3, 2))), "shapes"),
        (lambda t, h: t.update(mean=np.zeros(0), components=np.zeros((0, 0))), "shapes"),
        (lambda t, h: t.update(eigenvalues=t["eigenvalues"].astype(np.float32)), "float64"),
        (lambda t, h: t.pop("components"), "not a valid"),
        (lambda t, h: h["provenance"].pop("params"), "not a valid"),
        (lambda t, h: h["provenance"]["params"].update(n_components=9), "n_components"),
        (lambda t, h: h["provenance"]["params"].update(speed=9), "speed"),
        (lambda t, h: h["provenance"].update(params=[1]), "not a valid"),
        (lambda t, h: h.update(provenance="me"), "not a valid"),
    ],
)
def test_impossible_files_are_refused(tmp_path, change, message):
    Whitening().fit(sample(50, 3)).save(tmp_path / "w")
    tensors, header = io.load_tensors(tmp_path / "w", kind="whitening")
    header = {"provenance": header["provenance"]}
    io.save_tensors(tmp_path / "w", tensors, kind="whitening", header=header)
    assert Whitening.load(tmp_path / "w").rank_ == 3
    change(tensors, header)
    io.save_tensors(tmp_path / "w", tensors, kind="whitening", header=header)
    with pytest.raises(FormatError, match=message):
        Whitening.load(tmp_path / "w")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_normalize(dtype):
    X = sample(40, 6).astype(dtype)
    X[3] = 0
    before = X.copy()
    unit = normalize(X)
    assert unit.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert np.allclose(np.linalg.norm(np.delete(unit, 3, axis=0), axis=1), 1, atol=1e-6)
    assert not unit[3].any()
    assert np.array_equal(X, before)
    assert np.array_equal(normalize(X.reshape(2, 20, 6)), unit.reshape(2, 20, 6))
    assert np.allclose(normalize(X[5]), unit[5])
    assert np.allclose(normalize(jnp.asarray(X, jnp.float32)), unit, atol=1e-3)


@pytest.mark.parametrize("size", [2.0**-127, 1e-36, 1e-20, 1e20, 1e36])
def test_rows_at_the_ends_of_float32(size):
    """Below the smallest normal number of float32, XLA flushes to zero; rows and map are then taken in float64."""
    X = (sample(400, 6) * size).astype(np.float32)
    fitted = Whitening().fit(X)
    Z = fitted.transform(X)
    assert Z.dtype == np.float32
    assert np.allclose(np.cov(Z, rowvar=False, ddof=0), np.eye(6), atol=1e-3)
    assert np.allclose(fitted.inverse_transform(Z) / size, X / size, atol=1e-3)


def test_parameters_say_what_the_constructor_takes():
    found = dataclasses.fields(WhiteningParameters)
    assert {field.name: field.default for field in found} == Whitening().get_params()
    assert all(field.metadata["help"] for field in found)


def test_normalize_refuses_what_has_no_direction():
    for bad in (np.nan, np.inf):
        with pytest.raises(NonFiniteError, match="Row 1 "):
            normalize(np.array([[1.0, 2.0], [bad, 1.0]]))
    assert normalize(np.zeros((0, 3))).shape == (0, 3)
