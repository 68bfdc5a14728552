"""What every code promises, whatever it learns: a code is tested by being registered."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.arrays import normalize
from jaxwhiten.codes import CODES, Int8, SpectrumCode, load_code, make_code
from jaxwhiten.codes.code import behind, transforms
from jaxwhiten.errors import FormatError, InputError, MismatchError, NonFiniteError, NotFittedError
from jaxwhiten.space import Space
from jaxwhiten.vectors import with_space
from jaxwhiten.whitening import Moments, Whitening

N, D = 1200, 32
PARAMS = {"spectrum": {"bytes": 6}}
RNG = np.random.default_rng(0)
X = (RNG.standard_normal((N, D)) * np.linspace(2, 0.3, D) + 0.3 * RNG.standard_normal(D)).astype(np.float32)


def make(name):
    return make_code(name, **PARAMS.get(name, {}))


@pytest.fixture(scope="module", params=CODES)
def code(request):
    return make(request.param).fit(X)


@pytest.fixture(scope="module")
def codes(code):
    return code.encode(X)


def mostly_equal(found, wanted, share=0.005):
    """But for values within rounding of the border of two bytes."""
    assert found.shape == wanted.shape
    assert (np.asarray(found) != np.asarray(wanted)).mean() < share


def test_rows_of_any_dtype_become_bytes_alone_and_together(code, codes, monkeypatch):
    assert (codes.dtype, codes.shape) == (np.uint8, (N, code.nbytes))
    np.testing.assert_array_equal(np.concatenate([code.encode(X[:1]), code.encode(X[1:0]), code.encode(X[1:])]), codes)
    order = RNG.permutation(N)
    np.testing.assert_array_equal(code.encode(X[order]), codes[order])
    for dtype in (np.float16, np.float64):
        mostly_equal(code.encode(X.astype(dtype)), code.encode(X.astype(dtype).astype(np.float32)))
    monkeypatch.setattr("jaxwhiten.codes.code._BLOCK_BYTES", 600 * 4 * D)
    np.testing.assert_array_equal(code.encode(X), codes)
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, codes) for found in pool.map(code.encode, [X] * 8))


def test_decoding_is_a_projection(code, codes):
    """What bytes represent is coded by these bytes, and `transform` gives it."""
    decoded = code.decode(codes)
    assert (decoded.dtype, decoded.shape) == (np.float32, X.shape)
    np.testing.assert_allclose(code.decode(code.encode(decoded)), decoded, atol=1e-5)
    np.testing.assert_array_equal(code.transform(X), decoded)
    np.testing.assert_array_equal(code.decode(np.asarray(codes).view(np.int8)), decoded)
    assert np.isfinite(code.decode(np.arange(256, dtype=np.uint8)[:, None].repeat(code.nbytes, axis=1))).all()
    assert code.decode(codes[:0]).shape == (0, D)


@pytest.mark.parametrize("cuts", [[1], [600], [7, 300, 301]])
@pytest.mark.parametrize("name", CODES)
def test_a_fit_is_that_of_all_rows_in_any_order_and_split(name, cuts):
    whole, parts = make(name).fit(X), make(name)
    for part in np.split(X, cuts):
        parts.partial_fit(part)
    for other in (parts, make(name).fit(X[600:] + 9).fit(X[::-1])):
        assert other.n_samples_seen_ == N
        mostly_equal(other.encode(X), whole.encode(X))
    if name == "spectrum":
        merged = Moments.of(X[600:]).merge(Moments.of(X[:600]))
        mostly_equal(make(name).fit(merged).encode(X), whole.encode(X))


@pytest.mark.parametrize("power", [-30, -12, 12, 30])
@pytest.mark.parametrize("name", CODES)
def test_a_code_does_not_depend_on_the_scale_of_its_vectors(name, power, codes_of_doubles):
    scale = 2.0 ** round(power * np.log2(10))  # by which multiplication is exact
    for dtype in (np.float32, np.float64):
        rows = (X * scale).astype(dtype)
        if name == "spectrum" and abs(power) > 15:
            with pytest.raises(InputError, match=r"1e-15 to 1e\+15"):
                make(name).fit(rows)
            continue
        code, (expected, wanted) = make(name).fit(rows), codes_of_doubles(name, dtype)
        mostly_equal(code.encode(rows), wanted, 0.001)
        size = 1 if "binary" in name else scale
        np.testing.assert_allclose(code.decode(wanted) / size, expected.decode(wanted), atol=1e-5)
        np.testing.assert_allclose(code.scores(rows[:9], wanted), expected.scores(X[:9], wanted), atol=1e-5)


@pytest.fixture(scope="module")
def codes_of_doubles():
    def fitted(name, dtype):
        code = make(name).fit(X.astype(dtype))
        return code, np.asarray(code.encode(X.astype(dtype)))

    return fitted


def test_scores_are_cosines_with_decoded_vectors(code, codes):
    unit = normalize(code.decode(codes).astype(np.float64))
    np.testing.assert_allclose(code.scores(X[:9], codes), normalize(X[:9].astype(np.float64)) @ unit.T, atol=1e-5)
    np.testing.assert_allclose(code.scores(codes[:9], codes), unit[:9] @ unit.T, atol=1e-5)


def test_tables_and_coordinates_give_the_scores(code, codes):
    quantizer, values = code.quantizer(), np.asarray(codes)
    assert (quantizer.nbytes, quantizer.name) == (code.nbytes, code.name)
    wanted, (products, squares) = code.scores(X[:5], codes), code.tables(X[:5])
    halves = values if quantizer.bits == 8 else np.stack([values & 15, values >> 4], axis=2).reshape(N, -1)
    groups = np.arange(halves.shape[1])
    found = products[:, groups, halves].sum(axis=2) / np.sqrt(squares[groups, halves].sum(axis=1))
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    asked = quantizer.query_coordinates(normalize(X[:5]))
    np.testing.assert_allclose(quantizer.cosines(*asked, values), wanted, atol=1e-5)
    each = quantizer.cosines(*asked, np.stack([values[:40]] * 5))
    np.testing.assert_allclose(each, wanted[:, :40], atol=1e-5)
    decoded = quantizer.coordinates(values) @ quantizer.affine.matrix.T + quantizer.affine.shift
    np.testing.assert_allclose(decoded, code.decode(codes), atol=1e-5)
    mostly_equal(quantizer.quantize(quantizer.affine(X)), values)


def test_jax_gives_the_bytes_of_numpy(code, codes):
    compiled = jax.jit(code.encode)(jnp.asarray(X))
    assert compiled.dtype == np.uint8
    mostly_equal(compiled, codes)
    lost = [((X - code.decode(np.asarray(found))) ** 2).sum(axis=1) for found in (compiled, codes)]
    np.testing.assert_allclose(*lost, atol=1e-4)


def test_faiss_codes_and_searches_alike(code, codes):
    faiss = pytest.importorskip("faiss")
    quantizer = code.quantizer()
    index = behind(transforms(quantizer.affine), quantizer.empty_pq())
    index.add(X)
    stored = faiss.vector_to_array(faiss.downcast_index(index.index).codes).reshape(codes.shape)
    mostly_equal(stored, codes, 0.01)
    distances, ids = index.search(X[:20], 5)
    wanted = ((code.affine(X[:20])[:, None] - code.affine(code.decode(stored))[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(np.sort(wanted, axis=1)[:, :5], distances, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(np.take_along_axis(wanted, ids, axis=1), distances, rtol=1e-4, atol=1e-3)


def test_files_pickles_and_copies_are_the_same_code(code, codes, tmp_path):
    code.save(tmp_path / "code", {"corpus": "wiki", "n": "not this one"})
    loaded = load_code(tmp_path / "code")
    facts = loaded.provenance
    assert (facts["method"], facts["corpus"], facts["n"], facts["dimension"]) == (code.name, "wiki", N, D)
    assert facts["params"] == code.get_params()
    with pytest.raises(FormatError, match=f"contains a '{code.name}'"):
        Whitening.load(tmp_path / "code")
    for same in (loaded, copy.deepcopy(code), pickle.loads(pickle.dumps(code))):
        assert repr(same) == repr(code)
        np.testing.assert_array_equal(same.encode(X), codes)
        before, more = code.encode(X), same.partial_fit(X[:99] + 9)
        assert more.n_samples_seen_ == N + 99
        np.testing.assert_array_equal(code.encode(X), before)


def test_rows_of_a_space_give_codes_of_it_and_others_are_refused(code):
    space = Space(model="m", pooling="mean", dimension=D, fingerprint="1", head="1")
    of_it = make(code.name).fit(with_space(X, space))
    found = of_it.encode(with_space(X, space))
    assert (of_it.space, found.space, found.code) == (space, space, of_it)
    assert of_it.encode(X).space is None
    assert of_it.provenance["model"] == "m"
    other = with_space(X, Space(model="m", pooling="cls", dimension=D, fingerprint="1", head="2"))
    for use in (of_it.encode, of_it.transform, of_it.partial_fit, lambda x: of_it.scores(x, found)):
        with pytest.raises(MismatchError, match="pooling"):
            use(other)
    with pytest.raises(MismatchError, match="their own code"):
        of_it.decode(make(code.name).fit(other).encode(other))
    np.testing.assert_array_equal(of_it.decode(make(code.name).fit(with_space(X, space)).encode(X)), found.decode())


OF_CODES = {
    "moments": lambda x: Moments().update(x).M2,
    "whitening": lambda x: Whitening().fit(x).transform(x),
    "code": lambda x: Int8().fit(x).ranges_,
    "unit length": normalize,
}


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
@pytest.mark.parametrize("name", OF_CODES)
def test_what_is_made_of_codes_is_made_of_what_they_represent(code, codes, name):
    np.testing.assert_array_equal(OF_CODES[name](codes), OF_CODES[name](code.decode(codes)))
    with pytest.raises(InputError, match="without their code"):
        OF_CODES[name](np.asarray(codes))


MISTAKES = {
    "not finite": (lambda code, bad: code.encode(bad), NonFiniteError, "Row 5"),
    "another width": (lambda code, bad: code.encode(X[:, 1:]), InputError, f"{D} features"),
    "another width in JAX": (lambda code, bad: jax.jit(code.encode)(jnp.zeros((3, 5))), InputError, "takes"),
    "other bytes": (lambda code, bad: code.decode(np.zeros((3, code.nbytes + 1), np.uint8)), InputError, "uint8"),
    "no bytes": (lambda code, bad: code.decode(np.zeros((3, code.nbytes), np.int32)), InputError, "uint8"),
    "not fitted": (lambda code, bad: make(code.name).encode(X), NotFittedError, "fit"),
    "no such parameter": (lambda code, bad: code.set_params(gama=1), InputError, "gama"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(code, mistake):
    bad = X[:9].copy()
    bad[5, 1] = np.nan
    use, error, words = MISTAKES[mistake]
    with pytest.raises(error, match=words):
        use(code, bad)


FITS = {
    "too many bytes": (lambda: SpectrumCode(bytes=17).fit(X), InputError, "at most 16"),
    "no bytes": (lambda: SpectrumCode(bytes=0).fit(X), InputError, "bytes"),
    "no parameter of a code": (lambda: SpectrumCode(bytes=4, gamma=0.5), TypeError, "gamma"),
    "no rows": (lambda: SpectrumCode(bytes=4).fit(Moments()), InputError, "empty"),
    "equal rows": (lambda: SpectrumCode(bytes=3).fit(np.ones((500, 8))), InputError, "identical"),
    "a mean of another width": (lambda: SpectrumCode(bytes=4).fit(X, mean=np.zeros(3)), InputError, "32 finite"),
    "two means": (lambda: SpectrumCode(bytes=4).fit(Whitening().fit(X), mean=X[0]), InputError, "with_mean"),
    "moments of a code of ranges": (lambda: make("int8").fit(Moments.of(X)), InputError, "rows of numbers"),
    "a typo": (lambda: make("ubinry"), InputError, "'ubinary'"),
}


@pytest.mark.parametrize("mistake", FITS)
def test_what_cannot_be_fitted_is_refused(mistake):
    fit, error, words = FITS[mistake]
    with pytest.raises(error, match=words):
        fit()
