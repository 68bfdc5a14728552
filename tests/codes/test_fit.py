"""From moments to a whitening, a code, or both: what is whitened, and what is coded as it is."""

import numpy as np
import pytest

from jaxwhiten.codes import SpectrumCode
from jaxwhiten.codes.fit import fit
from jaxwhiten.errors import InputError
from jaxwhiten.whitening import Moments, Whitening

D = 32
ROWS = (np.random.default_rng(0).standard_normal((2000, D)) * np.arange(1, D + 1) ** -0.6).astype(np.float32)


def moments(**provenance):
    return Moments(provenance=provenance).update(ROWS)


@pytest.mark.parametrize(("recorded", "tuned"), [({"tuned": True}, None), ({}, None), ({"tuned": False}, True)])
def test_vectors_of_a_tuned_encoder_are_coded_as_they_are(recorded, tuned):
    found = fit(moments(**recorded), bytes=8, tuned=tuned)
    assert found.whitening is None
    assert not found.why
    np.testing.assert_array_equal(found.code.encode(ROWS), SpectrumCode(bytes=8).fit(moments()).encode(ROWS))


@pytest.mark.parametrize(("recorded", "tuned"), [({"tuned": False}, None), ({}, False), ({"tuned": True}, False)])
def test_vectors_of_another_encoder_are_whitened_first_and_it_is_said(recorded, tuned):
    found = fit(moments(**recorded), bytes=8, tuned=tuned)
    assert found.whitening.gamma == 1
    assert "whitened before they are coded" in found.why
    shrunk = Whitening(gamma=1, shrinkage="oas").fit(ROWS)
    np.testing.assert_allclose(found.whitening.transform(ROWS), shrunk.transform(ROWS), atol=1e-3)
    assert found.code.distortion_ == SpectrumCode(bytes=8).fit(found.whitening).distortion_


@pytest.mark.parametrize("params", [{"gamma": 0.5}, {"n_components": 20}, {"shrinkage": 0.1}])
def test_who_asks_for_a_whitening_gets_it_from_any_encoder(params):
    found = fit(moments(tuned=True), bytes=8, **params)
    assert found.whitening.gamma == params.get("gamma", 0.25)
    assert found.code.n_features_in_ == params.get("n_components", D)
    assert bool(found.why) == ("gamma" not in params)


def test_without_bytes_it_is_the_whitening_alone():
    found = fit(moments(tuned=True), n_components=7)
    assert (found.code, found.whitening.n_components) == (None, 7)
    with pytest.raises(InputError, match="bytes=4: expected at most 3, half a byte per dimension"):
        fit(moments(), bytes=4, n_components=7)
