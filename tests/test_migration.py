"""docs/guides/sentence-transformers.md: both columns of its table, run on one folder, give the same."""

import re

import numpy as np
import pytest

from tests.documents import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "sentence-transformers.md"
LINES = re.findall(r"^\| `(.+)` \| `(.+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def names(minilm, tmp_path_factory):
    """What the page's own code defines, run in a folder of its own."""
    pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    found: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("migration"))
        for _, code in blocks(PAGE):
            exec(code, found)
        yield found


def same(theirs, ours):
    """Whether two results are the same up to rounding: arrays, hits, pairs, or plain values."""
    if isinstance(ours, list):
        assert len(theirs) == len(ours)
        assert all(same(*pair) for pair in zip(theirs, ours, strict=True))
        return True
    if isinstance(ours, dict):
        assert theirs.keys() == ours.keys()
        return all(same(theirs[key], ours[key]) for key in ours)
    if isinstance(ours, np.ndarray | float):
        assert np.shape(theirs) == np.shape(ours)
        return np.allclose(np.asarray(theirs), ours, atol=1e-5)
    return bool(theirs == ours)


@pytest.mark.slow
@pytest.mark.parametrize(("theirs", "ours"), LINES, ids=[ours for _, ours in LINES])
def test_both_sides_give_the_same(names, theirs, ours):
    assert same(eval(theirs, names), eval(ours, names))
