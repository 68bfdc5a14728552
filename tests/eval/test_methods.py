"""Post-processings of vectors that papers propose: what holds for each, and BERT-flow's density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy.stats import norm

from eval.methods import METHODS, make_method
from eval.methods.glow import Glow

# A small flow: compiling one takes longer than everything else here.
PARAMS = {"bert-flow": {"depth": 1, "width": 4, "epochs": 40}}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_maps_vectors(name):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 12)) @ rng.standard_normal((12, 12)) + rng.standard_normal(12)
    rows = rows.astype(np.float32)
    method = make_method(name, **PARAMS.get(name, {})).fit(rows)
    z = method.transform(rows[:7])
    assert (z.shape, z.dtype) == ((7, 12), np.float32)
    np.testing.assert_allclose(method.transform(rows[:7].astype(np.float64)), z, atol=1e-4)
    again = make_method(name, **PARAMS.get(name, {})).fit_transform(rows)
    np.testing.assert_allclose(again[:7], z, atol=1e-5)
    if name == "bert-flow":
        assert method.losses_[-20:].mean() < method.losses_[:20].mean() - 0.05


def test_the_likelihood_of_a_flow_is_that_of_a_change_of_variables():
    flow = Glow(7, 2, 2, 4, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    state = jax.tree.map(lambda a: jnp.asarray(0.3 * rng.standard_normal(a.shape), jnp.float32), nnx.state(flow))
    nnx.update(flow, state)  # random, so that no coupling is zero
    x = jnp.asarray(rng.standard_normal((5, 7)), jnp.float32)
    slopes = jax.vmap(jax.jacobian(lambda row: flow(row[None])[0]))(x)
    assert np.abs(slopes - slopes[0]).max() > 1e-3, "it is no linear map"
    expected = norm.logpdf(flow(x)).sum(axis=1) + np.linalg.slogdet(slopes).logabsdet
    np.testing.assert_allclose(flow.log_likelihood(x), expected, rtol=1e-4)
