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
        copy.copy,
        copy.deepcopy,
        lambda x: pickle.loads(pickle.dumps(x)),
    ],
)
def test_rows_copies_stacks_and_pickles_keep_the_code(same):
    found = same(CODES)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(as_floats(found), CODE.decode(same(PLAIN)))
    np.testing.assert_allclose(found[0].decode(), found.decode()[0], atol=1e-6)


@pytest.mark.parametrize(
    "lost",
    [
        *(np.asarray, np.array, lambda x: x ^ np.uint8(1), lambda x: np.concatenate([x, np.asarray(x)])),
        *(lambda x: np.concatenate([x, Int8().fit(X[:, :2]).encode(X[:, :2])]), lambda x: np.stack([x[0], x[1]])),
        *(lambda x: x[:, :1], lambda x: x[:, 0], lambda x: x.T, lambda x: x.reshape(-1)),
    ],
)
def test_bytes_whose_code_is_lost_are_refused(lost):
    assert lost(CODES).dtype == np.uint8
    with pytest.raises(InputError, match=r"without their code|Codes are"):
        as_floats(lost(CODES))


def test_numbers_made_of_codes_are_plain():
    assert type(CODES + np.float32(1)) is np.ndarray
    assert CODES.astype(np.float32).code is None
    assert isinstance(CODES.sum(), np.integer)


def test_codes_of_one_space_and_floats_are_compared():
    for code in (CODE, Int8().fit(X), UBinary().fit(X)):
        decoded = code.decode(code.encode(X))
        for found, documents in (comparable(X, code.encode(X)), comparable(code.encode(X), X)[::-1]):
            np.testing.assert_array_equal(found, X)
            np.testing.assert_array_equal(documents, decoded)
        wanted = (normalize(DECODED.astype(np.float64)) * normalize(decoded.astype(np.float64))).sum(axis=1)
        np.testing.assert_allclose(cosine_pairs(CODES, code.encode(X)), wanted, atol=1e-5)


OF_CODES = {
    "moments": lambda x: Moments().update(x).M2,
    "whitening": lambda x: Whitening().fit(x).transform(x),
    "code": lambda x: Int8().fit(x).ranges_,
    "unit length": normalize,
}


@pytest.mark.parametrize("name", OF_CODES)
def test_what_is_made_of_codes_is_made_of_what_they_represent(name):
    np.testing.assert_array_equal(OF_CODES[name](CODES), OF_CODES[name](DECODED))
    with pytest.raises(InputError, match="without their code"):
        OF_CODES[name](PLAIN)
