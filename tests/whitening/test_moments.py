"""Moments: equal to numpy in float64 for any dtype, offset, size, device count and split; exact merges; safe files."""

import pickle

import jax
import ml_dtypes
import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxwhiten.errors import InputError, MismatchError, NonFiniteError
from jaxwhiten.runtime import distributed, hardware
from jaxwhiten.whitening import merge_moments, moments
from jaxwhiten.whitening.moments import Moments, center_and_scale, sums_on_devices, sums_on_host

pytestmark = pytest.mark.devices
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def sample(n, d, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) / np.sqrt(d) + offset * rng.standard_normal(d)


def assert_equals(found, X, tolerance=1e-5):
    """Every statistic within `tolerance` of its natural size: standard deviations and their products."""
    X = np.asarray(X, np.float64)
    size = np.abs(X).max() or 1.0  # squares of small numbers are none
    mean, M2 = (X / size).mean(axis=0), np.cov(X / size, rowvar=False, ddof=0).reshape(X.shape[1], -1) * len(X)
    deviation = np.sqrt(np.diag(M2) / len(X))
    assert found.n == len(X)
    assert np.all(np.abs(found.mean / size - mean) <= tolerance * deviation + 1e-12)
    assert np.all(np.abs(found.M2 / size**2 - M2) <= tolerance * len(X) * np.outer(deviation, deviation) + 1e-20)
    assert np.all(np.diagonal(found.M2) >= 0)
    assert np.array_equal(found.M2, found.M2.T)


def reduced_on(devices, X):
    total = Moments()
    for part in moments.block_moments(X, devices):
        total.merge(part)
    return total


ONE_LARGE = sample(3000, 4).astype(np.float32)
ONE_LARGE[1] *= 1e25
# all-MiniLM-L6-v2 has columns whose squares vanish in float32, of size 1e-32 beside 0.1.
VANISHING = sample(700, 6) * [1, 1e-32, 1e-30, 0.1, 1e-25, 1] + [0, 3e-32, 0, 0, 0, 1]
ROWS = {
    **{f"{n} x {d}": sample(n, d).astype(np.float32) for n, d in ((1, 1), (7, 3), (5001, 8))},
    "far away": sample(1000, 33, 1000.0).astype(np.float32),
    **{str(np.dtype(t)): (10 * sample(400, 6, 3.0)).astype(t) for t in (np.float16, ml_dtypes.bfloat16, np.int8)},
    **{str(t): (10 * sample(400, 6, 3.0)).astype(t) for t in ("float64", "int64", ">f4")},
    **{f"times {size}": (sample(500, 4) / 10 * size).astype(np.float32) for size in (1e-30, 1e-12, 1e12, 3e37)},
    "one large row": ONE_LARGE,
    "vanishing": VANISHING.astype(np.float32),
    "equal": np.full((700, 5), np.float32(0.1)),
}
EXACT = ("float64", "int64", ">f4", "equal")


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("name", ROWS)
def test_equals_numpy_on_any_number_of_devices(name, count):
    X = ROWS[name]
    found = reduced_on(jax.local_devices()[:count], X)
    assert_equals(found, X, 1e-12 if name in EXACT else 1e-5)
    if len(X) > 1:
        np.testing.assert_allclose(found.covariance(ddof=1) * (len(X) - 1), found.M2)
    if name == "equal":
        assert not found.M2.any()
        np.testing.assert_array_equal(found.mean, X[0].astype(np.float64))


def test_blocks_cross_their_borders(monkeypatch, tmp_path):
    monkeypatch.setattr("jaxwhiten.arrays.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(moments, "_HOST_BLOCK_BYTES", 1 << 12)
    X = sample(1111, 8, offset=50.0).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    mapped, one = np.load(tmp_path / "x.npy", mmap_mode="r+"), jax.local_devices()[:1]
    assert [len(list(moments.block_moments(X, devices))) for devices in (jax.local_devices(), one)] == [9, 9]
    for found in (Moments().update(X), reduced_on(one, X), reduced_on(one, mapped)):
        assert_equals(found, X)
    mapped[1000, 3] = np.nan
    for reduce in (Moments().update, lambda rows: reduced_on(one, rows)):
        with pytest.raises(NonFiniteError, match="Row 1000 "):
            reduce(mapped)


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("size", [1.0, 1e-9])
def test_devices_without_float64(monkeypatch, count, size):
    """Rows in float64 are centered before they are rounded; what vanishes in float32 is summed again in float64."""
    monkeypatch.setattr(moments, "_DOUBLE_PLATFORMS", ())
    X = size * sample(500, 5) + 1e9 * (size == 1)
    center, scale = center_and_scale(X, FLOAT64)
    scale = 1.0 if size < 1 else scale
    sums = sums_on_devices(X, center, scale, jax.local_devices()[:count], 512)
    assert sums[0].dtype == np.float32
    found = moments.moments_of(500, sums, center, scale)
    if size < 1:
        assert found is None
        found = moments.moments_of(500, sums_on_host(X, center, scale), center, scale)
    assert_equals(found, X, 1e-12 if size < 1 else 1e-5)


def test_few_programs_are_compiled(monkeypatch):
    traced = []
    psum = jax.lax.psum
    monkeypatch.setattr(jax.lax, "psum", lambda x, axis_name: traced.append(x) or psum(x, axis_name))
    moments.device_sums.cache_clear()
    total = Moments()
    for n in range(1, 200, 3):
        total.update(sample(n, 4).astype(np.float32))
    assert 0 < len(traced) <= 10
    assert total.n == sum(range(1, 200, 3))


def test_eight_devices_are_used():
    assert len(jax.local_devices()) == 8
    found = sums_on_devices(np.ones((16, 2), np.float32), np.zeros(2, np.float32), 1.0, jax.local_devices(), 16)
    assert all(len(sums.devices()) == 8 for sums in found)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (511, 4), (1024, 5), (3001, 16)])
@pytest.mark.parametrize("cores", [1, 2, 8])
def test_host_sums_with_any_number_of_cores_and_chunks_do_not_depend_on_chance(monkeypatch, cores, n, d, dtype):
    monkeypatch.setattr(hardware, "cores", lambda: cores)
    monkeypatch.setattr(moments, "_CHUNK_BYTES", 600 * d * dtype.itemsize)
    X = sample(n, d, 5.0).astype(dtype)
    center, scale = center_and_scale(X, dtype)
    first, *others = (sums_on_host(X, center, scale) for _ in range(3))
    y = (X.astype(np.float64) - center) * scale
    size = np.abs(y)
    for number, (right, largest) in enumerate(((y.T @ y, size.T @ size), (y.sum(axis=0), size.sum(axis=0)))):
        assert first[number].dtype == np.float64
        assert np.all(np.abs(first[number] - right) <= (2e-6 if dtype == FLOAT32 else 1e-14) * largest)
        assert all(np.array_equal(other[number], first[number]) for other in others)


def test_a_lone_cpu_device_takes_the_blas_route_whose_matrices_may_be_too_wide_for_every_core(monkeypatch):
    """What a user's process does by default, away from the eight devices of these tests."""
    devices, X = jax.local_devices()[:1], sample(2000, 6, 1000.0).astype(np.float32)
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    monkeypatch.setattr(moments, "device_sums", None)
    assert_equals(Moments().update(X), X)
    monkeypatch.setattr(moments, "_MATRICES_BYTES", 1)
    monkeypatch.setattr(hardware, "_libraries", None)  # must not be asked for
    assert_equals(Moments().update(X), X)


def test_merge_changes_only_the_left_side_and_itself_counts_twice():
    X = sample(50, 4)
    a, b = Moments().update(X), Moments().update(X + 1)
    before = pickle.dumps(b)
    assert a.merge(b) is a
    assert pickle.dumps(b) == before
    assert_equals(b.merge(b), np.concatenate([X + 1, X + 1]), 1e-12)


def test_empty_moments_change_nothing():
    full = Moments().update(np.eye(3))
    empty = Moments().update(np.zeros((0, 3))).merge(Moments())
    assert empty.n == 0
    adopted = empty.merge(full)
    assert (adopted.n, full.merge(Moments()).update(np.zeros((0, 3))).n) == (3, 3)
    adopted.M2[:] = 0
    assert full.M2.any()


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nonfinite_rows_are_named_and_change_nothing(count, bad, dtype, monkeypatch):
    devices = jax.local_devices()[:count]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    X = sample(100, 3).astype(dtype)
    state = Moments().update(X)
    before = pickle.dumps(state)
    X[37, 1] = bad
    with pytest.raises(NonFiniteError, match="Row 37 "):
        state.update(X)
    assert pickle.dumps(state) == before


SEEN = Moments().update(np.eye(3))
MISTAKES = {
    "overflow": (lambda: Moments().update([[1e200], [-1e200], [0.0]]), InputError, "scale the input down"),
    "no columns": (lambda: Moments().update(np.zeros((2, 0))), InputError, r"0 feature\(s\)"),
    "sparse": (lambda: Moments().update(csr_array(np.eye(3))), InputError, "sparse"),
    "another width": (lambda: SEEN.update(np.eye(2)), MismatchError, "3 dimensions"),
    "other moments": (lambda: SEEN.merge(Moments().update(np.eye(2))), MismatchError, "the other moments"),
    "no covariance": (lambda: Moments().covariance(), InputError, "1 rows"),
    "one row less": (lambda: Moments().update([[1.0, 2.0]]).covariance(ddof=1), InputError, "ddof=1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_has_no_moments_is_refused(mistake):
    use, error, words = MISTAKES[mistake]
    with pytest.raises(error, match=words):
        use()
    assert SEEN.n == 3


def test_save_and_load(tmp_path):
    path = tmp_path / "m.safetensors"
    state = Moments().update(sample(50, 4))
    state.save(path, {"model": "m", "pooling": "cls"})
    back = Moments.load(path)
    assert pickle.dumps(Moments(back.n, back.mean, back.M2)) == pickle.dumps(Moments(50, state.mean, state.M2))
    assert back.provenance == {"model": "m", "pooling": "cls", "n": 50, "dimension": 4}
    back.update(sample(20, 4)).save(path)
    assert (Moments.load(path).n, Moments.load(path).provenance["model"]) == (70, "m")
    Moments().save(path)
    assert Moments.load(path).update(np.eye(2)).n == 2


def test_merged_moments_are_a_copy():
    own = Moments().update(sample(9, 3))
    merged, before = merge_moments(own), own.M2.copy()
    merged.update(np.ones((4, 3)))
    assert (own.n, merged.n) == (9, 13)
    np.testing.assert_array_equal(own.M2, before)


def test_moments_travel_bit_for_bit(monkeypatch):
    """Of two processes, the other of which has no rows. `tests/programs/test_distributed.py` has real processes."""
    own = Moments().update(sample(7, 4) * 1e-9 + 1e3)
    sent = []

    def broadcast(packed, source):
        sent.append(packed.view(np.uint32).copy().view(np.float64))
        return sent[-1] if source == 0 else np.zeros_like(packed)

    monkeypatch.setattr(distributed, "broadcast", broadcast)
    monkeypatch.setattr(distributed, "gather", lambda d: [4, 0])
    found = merge_moments(own)
    assert found.n == own.n
    for name in ("mean", "M2"):
        assert getattr(found, name).tobytes() == getattr(own, name).tobytes()
    assert merge_moments(Moments()).n == 0
    assert not sent[-1].any()
