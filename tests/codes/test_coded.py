"""Bytes that know their code: what keeps it, what loses it, and that bytes without one are taken for nothing."""

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening, normalize
from jaxwhiten.codes import Int8, SpectrumCode
from jaxwhiten.errors import InputError

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(300, 16)) * np.linspace(2, 0.1, 16) + 0.3).astype(np.float32)
CODE = SpectrumCode(bytes=2).fit(X)
CODES = CODE.encode(X)
PLAIN = np.asarray(CODES)
DECODED = CODE.decode(PLAIN)


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
