"""Tables and lines from strangers: what was written comes back, and anything else is a DataError with its line."""

import csv
import gzip
import io
import json
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxwhiten.datasets.examples import text_examples
from jaxwhiten.datasets.tables import read_header, read_table, table_rows
from jaxwhiten.datasets.textfile import BadRows, Corpus, numbered_lines
from jaxwhiten.errors import DataError
from tests.fuzz.common import attempt, damaged, fuzz

# What real files hold beside text: quotes, ends of lines, marks, other encodings, zeros.
PIECES = st.sampled_from(
    [
        *map(
            str.encode, ["a", "b", "é", "\t", ",", '"', "'", "\n", "\r\n", "\r", "\ufeff", "\u2028", "\x85", "\\", " "]
        ),
        *(b"\0", b"\xff", b"\xfe", b"\xe9", b"\xc3", b"\x80", b"\x1f\x8b", b"\x1a", b'""', b'"\n"', b"null", b"NaN"),
        *("é".encode(name) for name in ("utf-16", "utf-32", "latin-1", "utf-16-be")),
        *(b'{"a": 1, "b": "x"}\n', b'{"a": "\\ud800"}', b'{"a": "\\u0000"}', b'{"a": 1e999, "b": []}\n', b"[1]\n"),
    ]
)
ANY = st.lists(PIECES | st.binary(max_size=4), max_size=40).map(b"".join)
HEADS = {
    "tsv": [b"a\tb\n", b"\xef\xbb\xbfa\tb\r\n", b"", b"a\n", b"a\ta\n"],
    "csv": [b"a,b\n", b'"a","b"\r\n', b"", b'"a\n", b\n'],
    "jsonl": [b'{"a": "1", "b": "2"}\n', b"", b"\n\n"],
}


def check_table(table, skip):
    assert len({len(column) for column in table.values()} | {len(table.lines)}) == 1 or not table
    assert skip or not table.skipped
    for column in table.values():
        for item in column:
            assert isinstance(item, str | int | float)
            assert not isinstance(item, str) or (item.encode() is not None and "\0" not in item)


@pytest.mark.slow
@fuzz()
@given(data=st.data())
@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_any_bytes(tmp_path, ending, data):
    content = data.draw(st.sampled_from(HEADS[ending])) + data.draw(ANY)
    packed = data.draw(st.booleans())
    path = tmp_path / f"t.{ending}"
    path.write_bytes(gzip.compress(content, 1, mtime=0) if packed else content)
    skip = data.draw(st.booleans())
    table, error = attempt(lambda: read_table(path, skip_bad_rows=skip), names=str(path))
    if table is None:
        assert isinstance(error, DataError)
        return
    check_table(table, skip)
    if not skip:
        rows, _ = attempt(lambda: list(table_rows(path, read_header(path))))
        if rows is not None:
            assert [number for number, _ in rows] == table.lines.tolist()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
CELL = TEXT.filter(lambda text: not set(text) & set("\t\n\r") and not text.startswith('"'))


@pytest.mark.slow
@fuzz()
@given(rows=st.lists(st.tuples(CELL, CELL), max_size=12), end=st.sampled_from(["\n", "\r\n"]), bom=st.booleans())
def test_tsv_comes_back(tmp_path, rows, end, bom):
    path = tmp_path / "t.tsv"
    text = end.join(["a\tb", *("\t".join(row) for row in rows)])
    path.write_bytes(("\ufeff" if bom else "").encode() + text.encode())
    assert list(zip(*read_table(path).values(), strict=True)) == rows


@pytest.mark.slow
@fuzz()
@given(
    rows=st.lists(st.tuples(TEXT, TEXT), max_size=12),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    mark=st.sampled_from(",\t"),
)
def test_csv_comes_back(tmp_path, rows, quoting, mark):
    """With commas, tabs, quotes and ends of lines within cells."""
    rows = [tuple(cell.replace("\r", "") for cell in row) for row in rows]
    if mark == "\t":  # the lines of a text with line breaks and tabs may read as rows
        rows = [tuple(cell.replace("\t", " ") if "\n" in cell else cell for cell in row) for row in rows]
    out = io.StringIO()
    csv.writer(out, quoting=quoting, lineterminator="\n", delimiter=mark).writerows([("a", "b"), *rows])
    path = tmp_path / ("t.csv" if mark == "," else "t.tsv")
    path.write_bytes(out.getvalue().encode())
    assert list(zip(*read_table(path).values(), strict=True)) == rows


@pytest.mark.slow
@fuzz()
@given(
    rows=st.lists(st.tuples(TEXT, st.integers() | st.floats(allow_nan=False, allow_infinity=False)), max_size=12),
    escape=st.booleans(),
)
def test_jsonl_comes_back(tmp_path, rows, escape):
    path = tmp_path / "t.jsonl"
    lines = [json.dumps({"a": text, "b": number}, ensure_ascii=escape) for text, number in [("", 0), *rows]]
    path.write_bytes("\n".join(lines).encode())
    assert list(zip(*read_table(path).values(), strict=True))[1:] == rows


@pytest.mark.slow
@fuzz()
@given(rows=st.lists(st.tuples(TEXT, st.floats(allow_nan=False)), min_size=1, max_size=12), data=st.data())
def test_parquet_comes_back_whole_or_not_at_all(tmp_path, rows, data):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    texts, numbers = zip(*rows, strict=True)
    pq.write_table(pa.table({"a": texts, "b": numbers}), path, compression=data.draw(st.sampled_from(["NONE", "GZIP"])))
    assert list(zip(*read_table(path).values(), strict=True)) == rows
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    table, error = attempt(lambda: read_table(path), names=str(path))
    assert (table is None) == isinstance(error, DataError)


@fuzz()
@given(content=ANY, packed=st.booleans(), skip=st.booleans())
def test_any_lines(tmp_path, content, packed, skip):
    """Clean lines come back as they are; the rest is refused or counted."""
    path = tmp_path / "lines.txt"
    path.write_bytes(gzip.compress(content, 1, mtime=0) if packed else content)
    bad = BadRows(path, skip)
    found, error = attempt(lambda: [line for _, line in numbered_lines(path, bad)], names=str(path))
    if not packed and content[:2] == b"\x1f\x8b":
        return
    raw = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if raw[-1] == b"":
        raw.pop()
    clean = [line for line in raw if b"\0" not in line and decodes(line)]
    if error is not None:
        assert len(clean) < len(raw) or (len(raw) == 1 and b"\r" in content.rstrip(b"\r"))
        return
    assert found == [line.decode().removesuffix("\r") for line in clean]
    assert bad.count == len(raw) - len(clean)
    corpus, _ = attempt(lambda: list(Corpus([path], skip_bad_rows=skip).passages()))
    assert corpus == [line for line in found if line.strip()]


def decodes(line):
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def long_line(path, megabytes):
    with open(path, "wb") as file:
        file.write(b"a\tb\nfine\tfine\n")
        for _ in range(megabytes):
            file.write(b"x" * (1 << 20))
        file.write(b"\nlast\trow\n")


@pytest.mark.parametrize("megabytes", [10, 17, pytest.param(100, marks=pytest.mark.slow)])
def test_a_very_long_line(tmp_path, megabytes):
    """Read where it is within the limit; refused or left out above it, without being held."""
    path = tmp_path / "long.txt"
    long_line(path, megabytes)
    tracemalloc.start()
    try:
        bad = BadRows(path, skip=True)
        lines = [line[:9] for _, line in numbered_lines(path, bad)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    expected = ["a\tb", "fine\tfine", "x" * 9, "last\trow"]
    if megabytes > 16:
        del expected[2]
        with pytest.raises(DataError, match=r"line 3: longer than"):
            list(numbered_lines(path))
        with pytest.raises(DataError, match=r"line 3: longer than"):
            read_table(path)
    assert lines == expected
    assert bad.count == (megabytes > 16)
    assert peak < 90 << 20


@pytest.mark.parametrize(
    ("name", "head", "unit"),
    [
        pytest.param("one.txt.gz", b"", b"x", marks=pytest.mark.slow),
        pytest.param("breaks.csv.gz", b'a,b\n"', b"x" * 100_000 + b"\n", marks=pytest.mark.slow),
        pytest.param("one.jsonl.gz", b'{"a": "', b"x", marks=pytest.mark.slow),
        pytest.param("lines.tsv.gz", b"a\tb\n", b"x" * (12 << 20) + b"\ty\n", marks=pytest.mark.slow),
    ],
)
def test_a_gigabyte_in_a_gzip_of_one_megabyte(tmp_path, name, head, unit):
    """In one line or in eighty, bad rows refused or left out: an error with its place, before all of it is held."""
    path = tmp_path / name
    block = gzip.compress(unit * max((48 << 20) // len(unit), 1), 6)
    path.write_bytes(gzip.compress(head) + block * 20)
    assert path.stat().st_size < 2_000_000
    tracemalloc.start()
    try:
        for skip in (False, True):
            with pytest.raises(DataError, match=rf"{re.escape(str(path))}, line \d+: .*\d{{6}}"):
                text_examples(path, skip_bad_rows=skip) if ".txt" in name else read_table(path, skip_bad_rows=skip)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 400 << 20
