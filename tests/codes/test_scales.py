"""Vectors of any length: a code does not depend on their scale, or the error names the range."""

import numpy as np
import pytest

from jaxwhiten.codes import CODES, make_code
from jaxwhiten.errors import InputError

X = np.random.default_rng(0).standard_normal((800, 16)) * np.linspace(2, 0.3, 16) + 0.2


@pytest.mark.parametrize("power", range(-30, 31, 6))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CODES)
def test_a_code_does_not_depend_on_the_scale_of_its_vectors(name, dtype, power):
    params = {"bytes": 4} if name == "spectrum" else {}
    scale = 2.0 ** round(power * np.log2(10))  # by which multiplication is exact
    rows = (X * scale).astype(dtype)
    if name == "spectrum" and abs(power) > 15:
        with pytest.raises(InputError, match=r"1e-15 to 1e\+15"):
            make_code(name, **params).fit(rows)
        return
    code = make_code(name, **params).fit(rows)
    expected = make_code(name, **params).fit(X.astype(dtype))
    bytes, wanted = (np.asarray(of.encode(x)) for of, x in ((code, rows), (expected, X.astype(dtype))))
    assert (bytes == wanted).mean() > 0.999
    size = 1 if "binary" in name else scale
    np.testing.assert_allclose(code.decode(wanted) / size, expected.decode(wanted), atol=1e-5)
    np.testing.assert_allclose(code.scores(rows[:9], wanted), expected.scores(X[:9], wanted), atol=1e-5)
