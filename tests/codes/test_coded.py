"""Bytes that know their code: what keeps it, what loses it, and that bytes without one are taken for nothing."""

import copy
import pickle

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening, normalize
from jaxwhiten.arrays import as_floats, comparable
from jaxwhiten.codes import Int8, SpectrumCode, UBinary
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import cosine_pairs

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(300, 16)) * np.linspace(2, 0.1, 16) + 0.3).astype(np.float32)
CODE = SpectrumCode(bytes=2).fit(X)
CODES = CODE.encode(X)
PLAIN = np.asarray(CODES)
DECODED = CODE.decode(PLAIN)


@pytest.mark.parametrize(
    "same",
    [
        lambda x: x[5:9],
        lambda x: x[[3, 1]],
        lambda x: x[np.arange(300) < 7],
        lambda x: x.copy(),
        lambda x: np.concatenate([x[:4], x]),
        lambda x: copy.deepcopy(x),
        lambda x: pickle.loads(pickle.dumps(x)),
    ],
)
def test_rows_copies_stacks_and_pickles_keep_the_code(same):
    found = same(CODES)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(as_floats(found), CODE.decode(same(PLAIN)))


@pytest.mark.parametrize(
    "lost", [np.asarray, np.array, lambda x: x ^ np.uint8(1), lambda x: np.concatenate([x, np.asarray(x)])]
)
def test_bytes_whose_code_is_lost_are_refused(lost):
    assert lost(CODES).dtype == np.uint8
    with pytest.raises(InputError, match="without their code"):
        as_floats(lost(CODES))


def test_numbers_made_of_codes_are_plain():
    assert type(CODES + np.float32(1)) is np.ndarray
    assert CODES.astype(np.float32).code is None
    assert isinstance(CODES.sum(), np.integer)


def test_one_code_and_none_are_decoded():
    np.testing.assert_allclose(CODES[7].decode(), DECODED[7], atol=1e-6)
    assert CODES[:0].decode().shape == DECODED[:0].shape


@pytest.mark.parametrize("cut", [lambda x: x[:, :1], lambda x: x[:, 0], lambda x: x.T, lambda x: x.reshape(-1)])
def test_codes_cut_in_columns_are_refused(cut):
    with pytest.raises(InputError, match=r"without their code|Codes are uint8 \[n, 2\]"):
        as_floats(cut(CODES))


def test_floats_beside_codes_stay_as_they_are():
    for code in (CODE, Int8().fit(X), UBinary().fit(X)):
        for found, documents in (comparable(X, code.encode(X)), comparable(code.encode(X), X)[::-1]):
            np.testing.assert_array_equal(found, X)
            np.testing.assert_array_equal(documents, code.decode(code.encode(X)))


def test_codes_of_one_space_are_compared():
    np.testing.assert_array_equal(comparable(CODES, copy.deepcopy(CODE).encode(X))[1], DECODED)
    first, second = comparable(Int8().fit(X[:99]).encode(X), SpectrumCode(bytes=8).fit(X[:250]).encode(X))
    assert first.shape == second.shape == X.shape
    wanted = (normalize(first.astype(np.float64)) * normalize(second.astype(np.float64))).sum(axis=1)
    found = cosine_pairs(Int8().fit(X[:99]).encode(X), SpectrumCode(bytes=8).fit(X[:250]).encode(X))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_code_keeps_nearly_the_cosines_with_raw_vectors():
    others, code = np.roll(X, 1, axis=0), SpectrumCode(bytes=8).fit(X)
    wanted, found = cosine_pairs(X, others), cosine_pairs(code.encode(X), others)
    assert np.abs(found - wanted).mean() < 0.03
    np.testing.assert_allclose(found, cosine_pairs(code.decode(code.encode(X)), others), atol=1e-6)


def test_fitting_on_codes_is_fitting_on_what_they_stand_for():
    np.testing.assert_array_equal(Moments().update(CODES).M2, Moments().update(DECODED).M2)
    np.testing.assert_array_equal(Whitening().fit(CODES).transform(CODES), Whitening().fit(DECODED).transform(DECODED))
    for fit in (Moments().update, Whitening().fit, Int8().fit):
        with pytest.raises(InputError, match="without their code"):
            fit(PLAIN)


def test_measures_are_of_what_codes_stand_for():
    np.testing.assert_array_equal(normalize(CODES), normalize(DECODED))
    found = cosine_pairs(CODES, CODES[::-1])  # in reversed order, a product may add its terms in another one
    np.testing.assert_allclose(found, cosine_pairs(DECODED, DECODED[::-1]), atol=1e-6)
    with pytest.raises(InputError, match="without their code"):
        normalize(PLAIN)
