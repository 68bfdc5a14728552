"""Containers of texts: the check alone, without the doors (tests/faults/test_texts.py)."""

import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.text import TextList, as_rows, as_texts, text_blocks, text_fingerprint

ALONE = """
import sys
from jaxwhiten.text import as_texts
assert as_texts(iter(["a", "é"])) == ["a", "é"]
print([name for name in ("pandas", "pyarrow", "datasets", "polars") if name in sys.modules])
"""


class Column:
    """Read item by item, as a column that does not fit into memory."""

    def __init__(self):
        self.read = 0

    def __iter__(self):
        while True:
            self.read += 1
            yield str(self.read)

    def to_pylist(self):
        raise AssertionError("read as a whole")


def test_blocks_are_read_item_by_item():
    column = Column()
    blocks = text_blocks(column, 3)
    assert (next(blocks), next(blocks), column.read) == (["1", "2", "3"], ["4", "5", "6"], 6)


def test_rows_of_any_kind_become_columns():
    rows = [("a", "b"), ("c", "d"), ("e", "f")]
    for given in (rows, [list(row) for row in rows], np.array(rows), np.array(rows, object), iter(rows)):
        assert as_rows(given, 2, "a pair") == [("a", "c", "e"), ("b", "d", "f")]
    assert as_rows([], 3, "a pair and a score") == [(), (), ()]


def test_libraries_are_recognized_without_being_imported():
    assert subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_subclasses_of_str_become_str_and_masked_items_are_missing():
    found = as_texts([np.str_("a"), type("Name", (str,), {"__str__": lambda self: "other"})("c")])
    assert (found, {type(text) for text in found}) == (["a", "c"], {str})
    with pytest.raises(InputError, match=r"^Sentence 1: .*masked"):
        as_texts(np.ma.array(["a", "b"], mask=[0, 1]))


def test_checked_texts_are_not_checked_again():
    checked = as_texts(iter(["a", "b", "c"]))
    assert as_texts(checked) is checked
    assert isinstance(checked, TextList)
    blocks = list(text_blocks(checked, 2))
    assert blocks == [["a", "b"], ["c"]]
    assert set(map(type, blocks)) == {TextList}


def test_text_fingerprints_delimit_sentences():
    assert text_fingerprint(["ab", "c"]) != text_fingerprint(["a", "bc"])
    assert text_fingerprint(["a", ""]) != text_fingerprint(["a"])
    assert text_fingerprint(iter(["a", "b"])) == text_fingerprint(["a", "b"])
