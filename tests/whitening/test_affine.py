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


def example(d, k, offset=100.0, **how):
    rng = np.random.default_rng(0)
    return Affine(offset * rng.standard_normal(d), rng.standard_normal((d, k)), rng.standard_normal(k), **how)


def by_hand(f, X):
    return (np.asarray(X, np.float64) - f.shift) @ f.matrix + f.offset


@pytest.mark.parametrize("n", [0, 1, 7, 511, 512, 5000])
@pytest.mark.parametrize(("d", "k"), [(1, 1), (6, 3), (5, 9)])
def test_rows_of_any_number(route, n, d, k):
    f = example(d, k)
    X = (np.random.default_rng(n).standard_normal((n, d)) + f.shift).astype(np.float32)
    wide = np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)
    for rows in (X, np.asfortranarray(X), wide[::2, ::2]):
        found = f(rows)
        assert (found.shape, found.dtype) == ((n, k), np.float32)
        np.testing.assert_allclose(found, by_hand(f, X), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, bool])
def test_small_dtypes_are_mapped_in_float32(route, dtype):
    f = example(4, 3, offset=1.0)
    X = np.random.default_rng(0).integers(0, 2, (700, 4)).astype(dtype)
    assert f(X).dtype == np.float32
    np.testing.assert_allclose(f(X), by_hand(f, X), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, ">f4"])
def test_more_digits_are_mapped_in_float64(dtype):
    f = example(4, 3, offset=1e3)
    X = (1000 * np.random.default_rng(0).standard_normal((3000, 4))).astype(dtype)
    np.testing.assert_allclose(f(X), by_hand(f, X), rtol=1e-10)


def test_maps_at_the_ends_of_float32_go_through_float64():
    f = Affine(np.zeros(2), np.full((2, 1), 1e35), np.zeros(1))
    found = f(np.full((3, 2), 1e-30, np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 2e5, rtol=1e-6)
    with pytest.raises(InputError, match="Row 1 of the input overflows float32"):
        f(np.array([[1e-30, 0], [1e10, 0], [0, 0]], np.float32))


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 3e38])
def test_rows_whose_results_are_not_finite_are_named(route, bad):
    X = np.ones((3000, 3), np.float32)
    X[2900, 0] = np.nan
    X[1717] = bad
    error, words = (InputError, "overflows") if bad == 3e38 else (NonFiniteError, "NaN|inf")
    with pytest.raises(error, match=rf"Row 1717 .*({words})"):
        Affine(np.zeros(3), np.full((3, 2), 10.0), np.zeros(2))(X)


def test_large_results_whose_sum_does_not_fit_are_kept_and_far_rows_keep_their_digits(route):
    """The shift is rounded to float32; what that loses is in the offset."""
    X = np.full((2000, 1), 1e38, np.float32)
    np.testing.assert_array_equal(Affine(np.zeros(1), np.ones((1, 1)), np.zeros(1))(X), X)
    f = Affine(np.full(3, 1e6 + 0.03), np.eye(3), np.zeros(3))
    np.testing.assert_allclose(f(np.full((5, 3), 1e6 + 1, np.float32)), 0.97, atol=1e-6)


@pytest.mark.parametrize("unit_length", [False, True])
def test_kernel_host_and_device_are_one_map(unit_length):
    X = np.random.default_rng(1).standard_normal((50, 6)).astype(np.float32)
    f = example(6, 4, 1.0, unit_length=unit_length)
    W, b = f.kernel
    expected = X.astype(np.float64) @ W + b
    if unit_length:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert (W.dtype, b.dtype, f.inputs, f.outputs) == (np.float32, np.float32, 6, 4)
    again = f.in_float32(unit_length=unit_length)
    assert again(X.astype(np.float64)).dtype == np.float32
    for found in (f(X), jax.jit(f.on_device)(X), again(X)):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    B = np.random.default_rng(2).standard_normal((4, 2)).astype(np.float32)
    np.testing.assert_allclose(f.in_float32(unit_length=False).times(B)(X), (X @ W + b) @ B, atol=1e-4)
    hashes = {each.hash() for each in (f, again, Affine(f.shift, W, b + 1), Affine(f.shift + 1, *f.parts[1:]))}
    assert len(hashes) == 3


def test_the_identity_leaves_rows_or_scales_them():
    X = np.array([[3.0, 4.0], [0.0, 0.0]])
    same, unit = Affine(np.zeros(2)), Affine(np.zeros(2), unit_length=True)
    assert (same.inputs, same.outputs, same.hash()) == (2, 2, None)
    np.testing.assert_array_equal(same.kernel[0], np.eye(2))
    scaled = [[0.6, 0.8], [0, 0]]
    for f, expected in ((same, X), (unit, scaled), (same.in_float32(unit_length=True), scaled)):
        for found in (f(X), f.on_device(jnp.asarray(X))):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        with pytest.raises(NonFiniteError, match="Row 1"):
            f(np.array([[1.0, 2.0], [np.nan, 1.0]]))
