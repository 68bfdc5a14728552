"""Warnings point at the caller's line, whatever function of the package finds the reason."""

import ast
import warnings
from pathlib import Path

import numpy as np
import pytest

import jaxwhiten
from jaxwhiten import Encoder, Moments, SpectrumCode, Whitening
from jaxwhiten.errors import warn
from jaxwhiten.space import merged
from jaxwhiten.whitening import choose_gamma

PACKAGE = Path(jaxwhiten.__file__).parent
FEW = np.random.default_rng(0).normal(size=(9, 64)).astype(np.float32)
ALONG_FEW = np.repeat(FEW, 4, axis=0)
FLAT = np.random.default_rng(0).normal(size=(400, 64)) * 0.5 ** np.arange(64)

DOORS = {
    "whitening of few rows": lambda model: Whitening().fit(FEW),
    "code of few axes": lambda model: SpectrumCode(bytes=8).fit(ALONG_FEW).encode(FEW),
    "gamma of an unknown encoder": lambda model: choose_gamma(Moments().update(FLAT)),
    "index of few axes": lambda model: jaxwhiten.build_index(ALONG_FEW, bytes=8),
    "model without pooling": Encoder.from_pretrained,
    "merged facts": lambda model: merged("a.npz", {"fingerprint": "a"}, {}),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_warning_points_at_the_caller(tiny_model, door):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DOORS[door](tiny_model)
    assert {warning.filename for warning in caught} == {__file__}


def test_no_module_chooses_the_line_by_itself():
    """`warnings.warn` needs a number of frames, which changes with every helper in between."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
                found.append(file.relative_to(PACKAGE).as_posix())
    assert found == ["errors.py"]
    with pytest.warns(RuntimeWarning, match="words") as caught:
        warn("words", RuntimeWarning)
    assert caught[0].filename == __file__
