"""The sums of a block: equal to their definitions on either route, for any number of devices, cores and chunks."""

import jax
import numpy as np
import pytest

from jaxwhiten.runtime import hardware
from jaxwhiten.whitening import moments
from jaxwhiten.whitening.moments import center_and_scale, sums_on_devices, sums_on_host

pytestmark = pytest.mark.devices

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def sample(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) / np.sqrt(d) + 5 * rng.standard_normal(d)


def assert_sums(found, X, center, scale, tolerance):
    """Within `tolerance` of the sizes of what is summed."""
    y = (X.astype(np.float64) - center) * scale
    size = np.abs(y)
    expected, sizes = (y.T @ y, y.sum(axis=0)), (size.T @ size, size.sum(axis=0))
    for sums, right, largest in zip(found, expected, sizes, strict=True):
        assert np.all(np.abs(np.asarray(sums) - right) <= tolerance * largest)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 3), (511, 4), (1024, 5), (3001, 16), (4097, 8)])
@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_host_sums_with_any_number_of_cores_and_chunks(monkeypatch, cores, n, d, dtype):
    monkeypatch.setattr(hardware, "cores", lambda: cores)
    monkeypatch.setattr(moments, "_CHUNK_BYTES", 600 * d * dtype.itemsize)
    X = sample(n, d).astype(dtype)
    center, scale = center_and_scale(X, dtype)
    found = sums_on_host(X, center, scale)
    assert all(sums.dtype == np.float64 for sums in found)
    assert np.array_equal(found[0], found[0].T)
    assert_sums(found, X, center, scale, 2e-6 if dtype == FLOAT32 else 1e-14)


@pytest.mark.parametrize("cores", [1, 4])
def test_host_sums_do_not_depend_on_chance(monkeypatch, cores):
    monkeypatch.setattr(hardware, "cores", lambda: cores)
    monkeypatch.setattr(moments, "_CHUNK_BYTES", 1)
    X = sample(20_000, 6).astype(np.float32)
    center, scale = center_and_scale(X, FLOAT32)
    first, *others = (sums_on_host(X, center, scale) for _ in range(4))
    assert_sums(first, X, center, scale, 2e-6)
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_matrices_too_wide_for_every_core_are_left_to_blas(monkeypatch):
    X = sample(2000, 6).astype(np.float32)
    monkeypatch.setattr(moments, "_MATRICES_BYTES", 1)
    monkeypatch.setattr(hardware, "_libraries", None)  # must not be asked for
    center, scale = center_and_scale(X, FLOAT32)
    assert_sums(sums_on_host(X, center, scale), X, center, scale, 2e-6)


def test_eight_devices_are_used():
    assert len(jax.local_devices()) == 8
    found = sums_on_devices(np.ones((16, 2), np.float32), np.zeros(2, np.float32), 1.0, jax.local_devices(), 16)
    assert all(len(sums.devices()) == 8 for sums in found)
    assert np.array_equal(np.asarray(found[0]), np.full((2, 2), 16.0))
    assert np.array_equal(np.asarray(found[1]), [16.0, 16.0])
