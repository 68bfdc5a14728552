"""Affine maps: the host's BLAS and the device give the same, for any rows; what is not finite is named by both."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxwhiten.errors import InputError, NonFiniteError
from jaxwhiten.runtime import hardware
from jaxwhiten.whitening import affine
from jaxwhiten.whitening.affine import Affine


@pytest.fixture(params=["host", "device"])
def route(request, monkeypatch):
    """float32 rows by BLAS, as on a machine without an accelerator, or by the device, as on one with it."""
    if request.param == "device":
        monkeypatch.setattr(hardware, "has_accelerator", lambda: True)
        monkeypatch.setattr(affine.Affine, "_map_on_host", None)
        monkeypatch.setattr(affine, "_FEW_ROWS", -1)
    else:
        monkeypatch.setattr(affine, "map_block", None)
    monkeypatch.setattr(hardware, "cores", lambda: 3)
    monkeypatch.setattr(affine, "_CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(affine, "_BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(affine, "_HOST_BLOCK_BYTES", 1 << 14)
    return request.param


def example(d, k, offset=100.0, seed=0):
    rng = np.random.default_rng(seed)
    return Affine(offset * rng.standard_normal(d), rng.standard_normal((d, k)), rng.standard_normal(k))


@pytest.mark.parametrize("n", [0, 1, 7, 511, 512, 1025, 5000])
@pytest.mark.parametrize(("d", "k"), [(1, 1), (6, 3), (5, 9)])
def test_rows_of_any_number(route, n, d, k):
    f = example(d, k)
    X = (np.random.default_rng(n).standard_normal((n, d)) + f.shift).astype(np.float32)
    found = f(X)
    assert found.shape == (n, k)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (X.astype(np.float64) - f.shift) @ f.matrix + f.offset, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, bool])
def test_small_dtypes_are_mapped_in_float32(route, dtype):
    f = example(4, 3, offset=1.0)
    X = np.random.default_rng(0).integers(0, 2, (700, 4)).astype(dtype)
    found = f(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (X.astype(np.float64) - f.shift) @ f.matrix + f.offset, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, ">f4"])
def test_more_digits_are_mapped_in_float64(dtype):
    f = example(4, 3, offset=1e3)
    X = (1000 * np.random.default_rng(0).standard_normal((3000, 4))).astype(dtype)
    found = f(X)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, (X.astype(np.float64) - f.shift) @ f.matrix + f.offset, rtol=1e-10)


def test_maps_at_the_ends_of_float32_go_through_float64():
    f = Affine(np.zeros(2), np.full((2, 1), 1e35), np.zeros(1))
    found = f(np.full((3, 2), 1e-30, np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 2e5, rtol=1e-6)
    with pytest.raises(InputError, match="Row 1 of the input overflows float32"):
        f(np.array([[1e-30, 0], [1e10, 0], [0, 0]], np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_named(route, bad):
    X = np.ones((3000, 3), np.float32)
    X[2900, 0] = np.nan
    X[1717, 2] = bad
    with pytest.raises(NonFiniteError, match="Row 1717 "):
        example(3, 2)(X)


def test_results_that_do_not_fit_are_named(route):
    X = np.ones((3000, 3), np.float32)
    X[2222] = 3e38
    f = Affine(np.zeros(3), np.full((3, 2), 10.0), np.zeros(2))
    with pytest.raises(InputError, match="Row 2222 of the input overflows"):
        f(X)


def test_large_results_whose_sum_does_not_fit_are_kept(route):
    X = np.full((2000, 1), 1e38, np.float32)
    np.testing.assert_array_equal(Affine(np.zeros(1), np.ones((1, 1)), np.zeros(1))(X), X)


def test_rows_far_from_the_origin_keep_their_digits(route):
    """The shift is rounded to float32; what that loses is in the offset."""
    f = Affine(np.full(3, 1e6 + 0.03), np.eye(3), np.zeros(3))
    X = np.full((5, 3), 1e6 + 1, np.float32)
    np.testing.assert_allclose(f(X), 0.97, atol=1e-6)


def test_strided_rows(route):
    f = example(4, 2, offset=1.0)
    X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
    for view in (X[::2, ::2], np.asfortranarray(X[:, :4])):
        np.testing.assert_allclose(f(view), f(np.ascontiguousarray(view)), atol=1e-5)


@pytest.mark.parametrize("unit_length", [False, True])
def test_kernel_host_and_device_are_one_map(unit_length):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 6)).astype(np.float32)
    X[3] = 0
    f = Affine(rng.standard_normal(6), rng.standard_normal((6, 4)), rng.standard_normal(4), unit_length=unit_length)
    W, b = f.kernel
    expected = X.astype(np.float64) @ W + b
    if unit_length:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert (W.dtype, b.dtype, f.inputs, f.outputs) == (np.float32, np.float32, 6, 4)
    np.testing.assert_allclose(f(X), expected, atol=1e-5)
    np.testing.assert_allclose(jax.jit(f.on_device)(X), expected, atol=1e-5)
    again = f.in_float32(unit_length=unit_length)
    assert again.hash() == f.hash()
    assert again.hash() not in {Affine(again.shift, W, b + 1).hash(), Affine(again.shift + 1, *f.parts[1:]).hash()}
    assert again(X.astype(np.float64)).dtype == np.float32
    np.testing.assert_allclose(again(X), expected, atol=1e-5)


def test_the_identity_leaves_rows_or_scales_them():
    X = np.array([[3.0, 4.0], [0.0, 0.0]])
    same, unit = Affine(np.zeros(2)), Affine(np.zeros(2), unit_length=True)
    np.testing.assert_array_equal(same(X), X)
    np.testing.assert_array_equal(same.on_device(jnp.asarray(X)), X)
    for found in (unit(X), unit.on_device(jnp.asarray(X))):
        np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]], rtol=1e-6)
    assert (same.inputs, same.outputs, same.hash()) == (2, 2, None)
    np.testing.assert_array_equal(same.kernel[0], np.eye(2))
    with pytest.raises(NonFiniteError, match="Row 1"):
        unit(np.array([[1.0, 2.0], [np.nan, 1.0]]))
