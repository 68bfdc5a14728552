"""What holds for every method: files, provenance, and refusals that name what is wrong."""

import numpy as np
import pytest

from eval.methods import METHODS, make_method
from jaxwhiten.metrics import cosine_pairs

D = 12
NAMES = sorted(METHODS)
# A small flow: compiling one takes longer than everything else here.
PARAMS = {"bert-flow": {"depth": 1, "width": 4}}


def make(name):
    return make_method(name, **PARAMS.get(name, {}))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((400, D)) @ rng.standard_normal((D, D)) + rng.standard_normal(D)
    return mixed.astype(np.float32)


def scores(method, x, n=100):
    return cosine_pairs(method.transform(x[:n]), method.transform(x[n : 2 * n]))


@pytest.mark.parametrize("name", NAMES)
def test_a_method_maps_vectors(name, rows):
    method = make(name).fit(rows)
    z = method.transform(rows[:7])
    assert z.shape == (7, D)
    assert z.dtype == np.float32
    a, b = method.transform(rows[:3]).astype(np.float64), method.transform(rows[3:6]).astype(np.float64)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(scores(method, rows, 3), cosines, atol=1e-5)
    np.testing.assert_allclose(method.transform(rows[:7].astype(np.float64)), z, atol=1e-4)
    np.testing.assert_allclose(make(name).fit_transform(rows)[:7], z, atol=1e-5)
