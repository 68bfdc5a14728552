"""Bytes that know their code: what keeps it, what loses it, and that bytes without one are taken for nothing."""

import copy
import pickle

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening, normalize
from jaxwhiten.coded import as_floats, comparable
from jaxwhiten.codes import Int8, SpectrumCode, UBinary
from jaxwhiten.errors import InputError, MismatchError
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
        lambda x: np.repeat(x, 2, axis=0),
        lambda x: np.concatenate([x[:4], x]),
        lambda x: np.vstack(list(x[:3])),
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
    np.testing.assert_array_equal(CODES[7].decode(), DECODED[7])
    assert CODES[:0].decode().shape == DECODED[:0].shape


@pytest.mark.parametrize("cut", [lambda x: x[:, :1], lambda x: x[:, 0], lambda x: x.T, lambda x: x.reshape(-1)])
def test_codes_cut_in_columns_are_refused(cut):
    with pytest.raises(InputError, match=r"without their code|Codes are uint8 \[n, 2\]"):
        as_floats(cut(CODES))


def test_queries_stay_floats_beside_codes():
    for queries in (X, CODE.transform(X)):  # raw, and mapped already
        found, documents = comparable(queries, CODES)
        np.testing.assert_allclose(found, CODE.transform(X), atol=1e-6)
        np.testing.assert_array_equal(documents, DECODED)
    np.testing.assert_array_equal(comparable(CODES, X)[1], CODE.transform(X))
    plain = Int8().fit(X)
    np.testing.assert_array_equal(comparable(X, plain.encode(X))[0], X)


def test_codes_of_one_space_are_compared_and_others_are_not():
    np.testing.assert_array_equal(comparable(CODES, copy.deepcopy(CODE).encode(X))[1], DECODED)
    first, second = comparable(Int8().fit(X[:99]).encode(X), UBinary().fit(X).encode(X))
    assert first.shape == second.shape == X.shape
    with pytest.raises(MismatchError, match="map vectors differently"):
        comparable(CODES, SpectrumCode(bytes=2).fit(2 * X[:250]).encode(X))
    with pytest.raises(MismatchError, match=f"of 16 dimensions to {CODE.affine.outputs}; the floats have 5"):
        comparable(X[:, :5], CODES)
    square = SpectrumCode(bytes=8).fit(X)  # as many columns behind the map as in front of it
    with pytest.raises(MismatchError, match="may be of either kind"):
        comparable(X, square.encode(X))


def test_fitting_on_codes_is_fitting_on_what_they_stand_for():
    np.testing.assert_array_equal(Moments().update(CODES).M2, Moments().update(DECODED).M2)
    np.testing.assert_array_equal(Whitening().fit(CODES).transform(CODES), Whitening().fit(DECODED).transform(DECODED))
    for fit in (Moments().update, Whitening().fit, Int8().fit):
        with pytest.raises(InputError, match="without their code"):
            fit(PLAIN)


def test_measures_are_of_what_codes_stand_for():
    np.testing.assert_array_equal(normalize(CODES), normalize(DECODED))
    np.testing.assert_array_equal(cosine_pairs(CODES, CODES[::-1]), cosine_pairs(DECODED, DECODED[::-1]))
    with pytest.raises(InputError, match="without their code"):
        normalize(PLAIN)
