"""Blocks of rows, and the pages of memory-mapped ones, which are released without losing what is in them."""

from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Moments
from jaxwhiten.arrays import blocks, one_ahead, pad_rows, release_pages

STATM = Path("/proc/self/statm")


def mapped_bytes():
    """Resident bytes of this process that belong to files."""
    return int(STATM.read_text().split()[2]) * 4096


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).standard_normal((40_000, 256)).astype(np.float32))  # 41 MB
    return path


@pytest.mark.skipif(not STATM.exists(), reason="asks Linux what is resident")
def test_a_map_that_is_read_once_does_not_stay_in_memory(file):
    rows = np.load(file, mmap_mode="r")
    expected = np.asarray(rows).sum(dtype=np.float64)
    full = mapped_bytes()
    release_pages(rows[10_000:])
    assert full - mapped_bytes() > 0.7 * rows.nbytes
    assert rows.sum(dtype=np.float64) == expected
    Moments().update(rows)  # what is compiled and loaded the first time has its own pages
    rows.sum()
    before = mapped_bytes()
    Moments().update(rows)
    assert before - mapped_bytes() > 0.8 * rows.nbytes


def test_what_was_changed_in_a_private_map_stays(file):
    rows = np.load(file, mmap_mode="c")
    rows[:] = 7
    release_pages(rows)
    assert (rows == 7).all()


def test_other_arrays_are_left_alone(file):
    rows = np.load(file, mmap_mode="r")
    for array in (np.ones((3, 4)), rows[::2], rows[:1], rows[:0], rows.T):
        release_pages(array)
    np.testing.assert_array_equal(rows, np.load(file))


def test_each_item_is_dispatched_before_the_last_is_handed_out():
    events = []

    def dispatched(n):
        for i in range(n):
            events.append(("dispatch", i))
            yield i

    for n in range(5):
        events.clear()
        for i in one_ahead(dispatched(n)):
            events.append(("fetch", i))
        assert [i for what, i in events if what == "fetch"] == list(range(n))
        for i in range(n - 1):
            assert events.index(("dispatch", i + 1)) < events.index(("fetch", i))
            assert events.index(("fetch", i)) < events.index(("fetch", i + 1))


def test_blocks_cover_the_rows_and_padding_is_zero():
    assert list(blocks(7, 3)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(blocks(0, 3)) == []
    rows = np.ones((2, 3), np.float16)
    assert pad_rows(rows, 2) is rows
    padded = pad_rows(rows, 5)
    assert padded.dtype == np.float16
    np.testing.assert_array_equal(padded, [[1] * 3] * 2 + [[0] * 3] * 3)
