"""Tables that people damage: read as pandas reads them, or refused with row or column."""

import bz2
import gzip
import io
import json
import lzma
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxwhiten.datasets import read_table
from jaxwhiten.datasets.tables import table_rows
from jaxwhiten.errors import DataError
from tests.fuzz.common import attempt, fuzz

WORDS = st.text(st.sampled_from("abé ,;\"'+"), min_size=1, max_size=8).filter(str.strip)
ROWS = st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=6)
HARM = {
    "none": lambda lines, at: lines,
    "a short row": lambda lines, at: [*lines[:at], lines[at].rpartition(",")[0] or lines[at], *lines[at + 1 :]],
    "a long row": lambda lines, at: [*lines[:at], lines[at] + ",x", *lines[at + 1 :]],
    "a blank line": lambda lines, at: [*lines[:at], "", *lines[at:]],
    "an open quote": lambda lines, at: [*lines[:at], lines[at] + ',"', *lines[at + 1 :]],
    "a NUL": lambda lines, at: [*lines[:at], lines[at] + "\0", *lines[at + 1 :]],
    "no rows": lambda lines, at: lines[:1],
    "no header": lambda lines, at: lines[1:],
    "a row twice": lambda lines, at: [*lines[: at + 1], *lines[at:]],
    "two equal names": lambda lines, at: ["a,b,a", *lines[1:]],
    "a carriage return": lambda lines, at: [*lines[:at], lines[at].replace("a", "a\rb", 1), *lines[at + 1 :]],
    "a space before each cell": lambda lines, at: [*lines[:at], lines[at].replace(",", ", "), *lines[at + 1 :]],
    "a stray quote": lambda lines, at: [*lines[:at], lines[at].replace(",", '",', 1), *lines[at + 1 :]],
    "a cell of a megabyte": lambda lines, at: [*lines[:at], lines[at] + "x" * (1 << 20), *lines[at + 1 :]],
    "semicolons": lambda lines, at: [line.replace(",", ";") for line in lines],
    "Latin-1": lambda lines, at: [*lines[:at], lines[at] + "\udce9", *lines[at + 1 :]],
}


@fuzz(1 / 2)
@given(
    rows=ROWS,
    harm=st.sampled_from(sorted(HARM)),
    at=st.integers(0, 6),
    packed=st.sampled_from([None, gzip, bz2, lzma]),
    begin=st.sampled_from(["", "\ufeff"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_a_table_is_read_as_pandas_reads_it_or_refused_with_its_row(tmp_path, rows, harm, at, packed, begin, end):
    pd = pytest.importorskip("pandas")
    text = pd.DataFrame(rows, columns=["a", "b", "c"]).to_csv(index=False, lineterminator="\n")
    lines = HARM[harm](text.splitlines(), min(at, len(rows)))
    data = (begin + end.join(lines) + end).encode("utf-8", "surrogateescape")
    path = tmp_path / "t.csv"
    path.write_bytes(packed.compress(data) if packed else data)
    found, error = attempt(lambda: read_table(path), names=str(path))
    if found is None:
        assert harm not in ("none", "a row twice", "a blank line"), error
        assert re.match(rf"{path}, line \d+: .+\.$", str(error)), error
        return
    assert harm not in ("a NUL", "Latin-1", "a long row")
    expected = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
    assert list(found) == list(expected.columns)
    assert [list(column) for column in found.values()] == [expected[name].tolist() for name in expected.columns]


def test_columns_are_joined_and_folders_are_one_table(tmp_path):
    (tmp_path / "a.csv").write_text("title,body,c+d\nA,plays,x\n,runs,y\n")
    (tmp_path / "b.jsonl.xz").write_bytes(lzma.compress(json.dumps({"title": "B", "body": "is", "c+d": "z"}).encode()))
    rows = list(table_rows(tmp_path, ["title+body", "c+d", ["c+d", "title"]]))
    assert rows == [(2, ["A\nplays", "x", "x\nA"]), (3, ["runs", "y", "y"]), (1, ["B\nis", "z", "z\nB"])]
    (tmp_path / "c.csv").write_text("title,other\nA,b\n")
    with pytest.raises(DataError, match=r"c\.csv, line 1: no column 'body'; the columns are title, other"):
        list(table_rows(tmp_path, ["title+body"]))
