"""An index that grew and shrank by single documents is the index of what is left: the same ids and scores."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

# A process of its own: where FAISS merges lists it may write past their end.
HISTORY = """
import sys
import numpy as np
from jaxwhiten.search import build_index
backend, bytes, nlist, step, end = sys.argv[1], *map(int, sys.argv[2:])
rng = np.random.default_rng(0)
x = (rng.standard_normal((1200, 48)) * np.linspace(2, 0.3, 48)).astype(np.float32)
options = {"nlist": nlist, "nprobe": nlist} if nlist else {}
index, rows = build_index(x[:255], backend, bytes=bytes, tuned=True, **options), list(range(255))
for number in range(255, end, step):
    new = range(number, number + step)
    index.add(x[new])
    rows += new
    if number % 3 == 0:
        index.update(rows[:1], x[rows[:1]])
    if number % 50 == 0:
        index.remove([rows.pop(99)])
assert index.ids.tolist() == rows
expected = build_index(x[rows], like=index)
for queries in (x[1100:], x[1100:1101]):
    (scores, found), (wanted, places) = index.search(queries, 5), expected.search(queries, 5)
    np.testing.assert_array_equal(found, np.array(rows)[places])
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)
"""


@pytest.mark.parametrize(
    ("backend", "bytes", "nlist", "step", "end"),
    [
        ("faiss-ivf", 8, 1, 1, 310),  # FAISS's lists of 8 bytes end at 256 codes, those of 24 at 768
        pytest.param("faiss-ivf", 24, 2, 5, 1100, marks=pytest.mark.slow),
        pytest.param("faiss-flat", 8, 0, 1, 1100, marks=pytest.mark.slow),
    ],
)
def test_a_history_of_small_changes_gives_the_index_of_what_is_left(backend, bytes, nlist, step, end):
    pytest.importorskip("faiss")
    words = [sys.executable, "-c", HISTORY, backend, *map(str, (bytes, nlist, step, end))]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
