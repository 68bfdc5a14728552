"""One rule for γ: of the record of the vectors, of the caller, or of the vectors of an unknown encoder."""

import warnings

import numpy as np
import pytest

from jaxwhiten.whitening import (
    Moments,
    Whitening,
    WhiteningWarning,
    choose_gamma,
    is_spread,
    participation_ratio,
)


def of_variances(variances, n=8000, **provenance):
    variances = np.asarray(variances, np.float64)
    return Moments(n, np.ones(len(variances)), n * np.diag(variances), provenance)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_the_participation_ratio_is_that_of_the_variances_for_any_mean_and_scale(scale):
    moments = of_variances(scale * np.array([4.0, 2.0, 1.0, 1.0]))
    assert participation_ratio(moments) == pytest.approx(64 / 22)
    assert participation_ratio(of_variances(np.full(64, scale))) == pytest.approx(64)
    if scale == 1:
        for params in ({}, {"gamma": 0.3, "n_components": 2, "beta": 0.5, "shrinkage": 0.5}):
            assert participation_ratio(Whitening.from_moments(moments, **params)) == pytest.approx(64 / 22)


def test_without_variance_there_is_no_ratio():
    assert np.isnan(participation_ratio(of_variances([0.0, 0.0])))
    assert not is_spread(np.nan, 4)


def test_fifty_directions_or_a_quarter_of_them_are_spread():
    assert [is_spread(ratio, 384) for ratio in (12.0, 49.9, 50.0, 105.0)] == [False, False, True, True]
    assert [is_spread(ratio, 32) for ratio in (7.9, 8.0)] == [False, True]


def test_gamma_follows_the_caller_or_the_record_whatever_the_vectors():
    for variances in (np.ones(64), np.arange(1, 65) ** -2.0):
        for tuned, gamma in ((True, 0.25), (False, 1.0)):
            moments = of_variances(variances, tuned=tuned, participation_ratio=77.4)
            assert choose_gamma(moments).gamma == gamma
            assert "(judged by its vectors)" in str(choose_gamma(moments))
            assert choose_gamma(Whitening.from_moments(moments)) == choose_gamma(moments)
    found = choose_gamma(of_variances(np.ones(64), tuned=False))
    assert found.why == "the encoder is not fine-tuned for similarity (as recorded)"
    told = choose_gamma(of_variances(np.ones(64), tuned=False), tuned=True)
    assert (told.gamma, told.why) == (0.25, "the encoder is fine-tuned for similarity (as specified)")


def test_vectors_without_a_record_count_as_tuned_with_a_warning_if_they_are_narrow():
    narrow = np.arange(1, 257) ** -2.0
    with pytest.warns(WhiteningWarning, match=r"^γ=0.25, .* ratio, 2, .*--untuned"):
        assert choose_gamma(of_variances(narrow)).gamma == 0.25
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_gamma(of_variances(np.ones(256))).gamma == 0.25
        assert choose_gamma(of_variances(narrow, n=50)).gamma == 0.25  # too few rows to tell
        assert choose_gamma(of_variances(narrow), tuned=False).gamma == 1.0
