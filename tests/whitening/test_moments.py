"""Moments: equal to numpy in float64 for any dtype, offset, device count and split; exact merges; safe files."""

import os
import pickle
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from jaxwhiten import io
from jaxwhiten.errors import FormatError, InputError, MismatchError, NonFiniteError
from jaxwhiten.whitening import moments
from jaxwhiten.whitening.moments import Moments

pytestmark = pytest.mark.devices

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def reduce(X, devices):
    """Moments of X block by block."""
    return moments.block_moments(X, devices)


def reference(X):
    """n, mean and M2 in float64, from the definitions."""
    X = np.asarray(X, np.float64)
    mean = X.mean(axis=0)
    return len(X), mean, (X - mean).T @ (X - mean)


def assert_equals(found, X, tolerance=1e-5):
    """Every statistic within `tolerance` of its natural size: standard deviations and their products."""
    n, mean, M2 = reference(X)
    deviation = np.sqrt(np.diag(M2) / n)
    assert found.n == n
    assert np.all(np.abs(found.mean - mean) <= tolerance * deviation + 1e-12 * np.abs(mean))
    assert np.all(np.abs(found.M2 - M2) <= tolerance * n * np.outer(deviation, deviation) + 1e-24 * np.abs(mean).max())
    assert np.array_equal(found.M2, found.M2.T)


def assert_close(a, b, tolerance=1e-6):
    assert a.n == b.n
    size = np.sqrt(np.abs(np.diag(b.M2)))
    assert np.allclose(a.mean, b.mean, rtol=tolerance, atol=tolerance * size.max(initial=0))
    assert np.all(np.abs(a.M2 - b.M2) <= tolerance * np.outer(size, size) + 1e-12)


def sample(n, d, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) / np.sqrt(d) + offset * rng.standard_normal(d)


def reduced_on(devices, X):
    total = Moments()
    for part in reduce(X, devices):
        total.merge(part)
    return total


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 3), (1000, 33), (5001, 8)])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_equals_numpy_with_any_number_of_devices(count, n, d, offset):
    X = sample(n, d, offset).astype(np.float32)
    found = reduced_on(jax.local_devices()[:count], X)
    assert_equals(found, X)
    if n > 1:
        expected = np.atleast_2d(np.cov(X.astype(np.float64), rowvar=False))
        deviation = np.sqrt(np.diag(expected))
        assert np.all(np.abs(found.covariance(ddof=1) - expected) <= 1e-5 * np.outer(deviation, deviation))


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8, np.int64, ">f4"])
def test_dtypes(count, dtype):
    X = (10 * sample(400, 6, offset=3.0)).astype(dtype)
    double = np.dtype(dtype) in (np.float64, np.int64, np.dtype(">f4"))
    assert_equals(reduced_on(jax.local_devices()[:count], X), X, 1e-12 if double else 1e-5)


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30, 3e37])
def test_any_magnitude(count, size):
    X = (sample(500, 4) / 10 * size).astype(np.float32)
    found = reduced_on(jax.local_devices()[:count], X)
    scaled = Moments().update(X.astype(np.float64) / size)
    assert np.allclose(found.M2 / size**2, scaled.M2, rtol=1e-5, atol=1e-5 * np.diag(scaled.M2).max())


@pytest.mark.parametrize("count", [1, 8])
def test_few_large_rows_among_small_ones(count):
    X = sample(3000, 4).astype(np.float32)
    X[1] *= 1e25
    assert_equals(reduced_on(jax.local_devices()[:count], X), X)


def test_blocks_cross_their_borders(monkeypatch, tmp_path):
    monkeypatch.setattr("jaxwhiten.arrays.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(moments, "_HOST_BLOCK_BYTES", 1 << 12)
    X = sample(1111, 8, offset=50.0).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    mapped, one = np.load(tmp_path / "x.npy", mmap_mode="r"), jax.local_devices()[:1]
    assert len(list(reduce(X, jax.local_devices()))) == 9
    assert len(list(reduce(mapped, one))) == 9
    monkeypatch.setattr(moments, "_HOST_BLOCK_BYTES", 1 << 14)
    assert len(list(reduce(X, one))) == 3
    assert_equals(Moments().update(X), X)
    assert_equals(reduced_on(one, X), X)
    assert_equals(reduced_on(one, mapped), X)
    X[1000, 3] = np.nan
    np.save(tmp_path / "bad.npy", X)
    with pytest.raises(NonFiniteError, match="Row 1000 "):
        Moments().update(X)
    with pytest.raises(NonFiniteError, match="Row 1000 "):
        reduced_on(one, np.load(tmp_path / "bad.npy", mmap_mode="r"))


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("size", [1.0, 1e-9])
def test_devices_without_float64(monkeypatch, count, size):
    """Rows in float64 are centered before they are rounded; what vanishes in float32 is summed again in float64."""
    monkeypatch.setattr(moments, "_DOUBLE_PLATFORMS", ())
    X = size * sample(500, 5) + 1e9 * (size == 1)
    center, scale = moments.center_and_scale(X, np.dtype(np.float64))
    scale = 1.0 if size < 1 else scale
    sums = moments.sums_on_devices(X, center, scale, jax.local_devices()[:count], 512)
    assert sums[0].dtype == np.float32
    found = moments.moments_of(500, sums, center, scale)
    if size < 1:
        assert found is None
        found = moments.moments_of(500, moments.sums_on_host(X, center, scale), center, scale)
    assert_equals(found, X, 1e-12 if size < 1 else 1e-5)


def test_few_programs_are_compiled(monkeypatch):
    traced = []
    psum = jax.lax.psum
    monkeypatch.setattr(jax.lax, "psum", lambda x, axis_name: traced.append(x) or psum(x, axis_name))
    moments.device_sums.cache_clear()
    total = Moments()
    rng = np.random.default_rng(0)
    for n in range(1, 200, 3):
        total.update(rng.standard_normal((n, 4)).astype(np.float32))
    assert 0 < len(traced) <= 10
    assert total.n == sum(range(1, 200, 3))


def test_merge_changes_only_the_left_side_and_itself_counts_twice():
    X = sample(50, 4)
    a, b = Moments().update(X), Moments().update(X + 1)
    before = pickle.dumps(b)
    assert a.merge(b) is a
    assert pickle.dumps(b) == before
    b.merge(b)
    assert_equals(b, np.concatenate([X + 1, X + 1]), 1e-12)
    adopted = Moments().merge(a)
    adopted.M2[:] = 0
    assert a.M2.any()


def test_empty():
    empty = Moments()
    assert empty.n == 0
    assert empty.update(np.zeros((0, 3))) is empty
    assert empty.merge(Moments()).n == 0
    with pytest.raises(InputError, match="at least 1 rows"):
        empty.covariance()
    full = Moments().update(np.eye(3))
    assert full.merge(empty).n == 3
    assert empty.merge(full).n == 3
    assert full.update(np.zeros((0, 3))).n == 3


def test_single_row_and_equal_rows():
    one = Moments().update([[1.0, 2.0]])
    assert one.n == 1
    assert not one.M2.any()
    with pytest.raises(InputError, match="ddof=1"):
        one.covariance(ddof=1)
    X = np.full((700, 5), np.float32(0.1))
    for count in (1, 8):
        found = reduced_on(jax.local_devices()[:count], X)
        assert not found.M2.any()
        assert np.array_equal(found.mean, X[0].astype(np.float64))


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nonfinite_rows_are_named_and_change_nothing(count, bad, dtype, monkeypatch):
    devices = jax.local_devices()[:count]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    X = sample(100, 3).astype(dtype)
    state = Moments().update(X)
    before = pickle.dumps(state)
    X[37, 1] = bad
    with pytest.raises(NonFiniteError, match="Row 37 ") as caught:
        state.update(X)
    assert isinstance(caught.value, ValueError)
    assert pickle.dumps(state) == before


def test_values_beyond_float64_are_refused():
    with pytest.raises(InputError, match="scale the input down"):
        Moments().update(np.array([[1e200], [-1e200], [0.0]]))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), "Reshape your data"),
        (np.zeros((2, 0)), r"0 feature\(s\)"),
        (np.zeros((2, 2), complex), "Complex"),
        ([["a", "b"]], "got the str 'a' in row 0"),
    ],
)
def test_other_input_is_refused(X, message):
    with pytest.raises(InputError, match=message):
        Moments().update(X)


def test_sparse_input_is_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(InputError, match="sparse"):
        Moments().update(sparse.csr_array(np.eye(3)))


def test_another_number_of_columns_is_refused():
    state = Moments().update(np.eye(3))
    with pytest.raises(MismatchError, match="expects 3 dimensions, got 2 from the rows"):
        state.update(np.eye(2))
    with pytest.raises(MismatchError, match="expects 3 dimensions, got 2 from the other moments"):
        state.merge(Moments().update(np.eye(2)))
    assert state.n == 3


def test_lists_jax_arrays_strides_and_memory_maps(tmp_path):
    X = sample(300, 4).astype(np.float32)
    expected = Moments().update(X)
    np.save(tmp_path / "x.npy", X)
    for same in (X.tolist(), jax.numpy.asarray(X), np.asfortranarray(X), np.load(tmp_path / "x.npy", mmap_mode="r")):
        assert_close(Moments().update(same), expected)
    assert_close(Moments().update(np.repeat(X, 2, axis=0)[::2]), expected)


def test_save_and_load(tmp_path):
    path = tmp_path / "m.safetensors"
    state = Moments().update(sample(50, 4))
    state.save(path, {"model": "m", "pooling": "cls"})
    back = Moments.load(path)
    for name in ("mean", "M2"):
        assert np.array_equal(getattr(back, name), getattr(state, name))
    assert back.n == state.n
    assert back.provenance == {"model": "m", "pooling": "cls", "n": 50, "dimension": 4}
    back.update(sample(20, 4)).save(path)
    assert Moments.load(path).provenance["model"] == "m"
    assert Moments.load(path).n == 70
    Moments().save(path)
    assert Moments.load(path).update(np.eye(2)).n == 2


def good_tensors():
    state = Moments().update(sample(50, 3))
    return {"n": np.array([50]), "mean": state.mean.copy(), "M2": state.M2.copy(), "eps": np.array([1e-16])}


def put(name, index, value):
    def change(tensors):
        tensors[name][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("mean", 0, np.nan), "NaN"),
        (put("M2", (0, 1), 7.0), "not symmetric"),
        (put("M2", (1, 1), -1.0), "variances: -1.0"),
        (put("n", 0, -5), "n, with 3 columns: -5"),
        (put("n", 0, 0), "n, with 3 columns: 0"),
        (lambda t: t.update(mean=np.zeros(4)), "shapes"),
        (lambda t: t.update(M2=np.zeros((3, 3, 1))), "shapes"),
        (lambda t: t.update(mean=np.zeros((3, 1))), "shapes"),
        (lambda t: t.update(M2=t["M2"].astype(np.float32)), "float64"),
        (lambda t: t.update(n=np.array([1, 2])), "not a valid"),
        (lambda t: t.pop("M2"), "not a valid"),
    ],
)
def test_impossible_files_are_refused(tmp_path, change, message):
    tensors = good_tensors()
    io.save_tensors(tmp_path / "good", tensors, kind="moments", header={"provenance": {}})
    assert Moments.load(tmp_path / "good").n == 50
    change(tensors)
    io.save_tensors(tmp_path / "bad", tensors, kind="moments", header={"provenance": {}})
    with pytest.raises(FormatError, match=message):
        Moments.load(tmp_path / "bad")


def test_lone_cpu_device_takes_the_blas_route(tmp_path):
    """What a user's process does by default, away from the eight devices of these tests."""
    X = sample(3000, 5, 1000.0).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    program = (
        "import sys, numpy as np; from jaxwhiten.whitening import moments\n"
        "m = moments.Moments().update(np.load(sys.argv[1], mmap_mode='r')); m.save(sys.argv[2])\n"
        "assert not moments.device_sums.cache_info().currsize\n"
    )
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    arguments = [sys.executable, "-c", program, str(tmp_path / "x.npy"), str(tmp_path / "m")]
    subprocess.run(arguments, check=True, env=environment, timeout=120)
    assert_equals(Moments.load(tmp_path / "m"), X)
    assert_close(Moments.load(tmp_path / "m"), Moments().update(X))


@pytest.mark.parametrize("count", [1, 8])
def test_columns_whose_squares_vanish_in_float32_have_no_negative_variance(count):
    """all-MiniLM-L6-v2 has such columns, of size 1e-32 beside 0.1."""
    x = np.random.default_rng(0).normal(size=(700, 6)) * [1, 1e-32, 1e-30, 0.1, 1e-25, 1] + [0, 3e-32, 0, 0, 0, 1]
    found = reduced_on(jax.local_devices()[:count], x.astype(np.float32))
    assert (np.diagonal(found.M2) >= 0).all()
