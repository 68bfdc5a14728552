"""Tables and lines from strangers: what was written comes back, and anything else is a DataError with its line."""

import csv
import functools
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxwhiten.datasets.tables import read_header, read_table, table_rows
from jaxwhiten.datasets.textfile import BadRows, Corpus, numbered_lines
from jaxwhiten.errors import DataError
from tests.conftest import slow_but
from tests.fuzz.common import attempt, damaged, fuzz

# Every character but NUL; a carriage return is quoted by some writers only.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)
TEXTS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=12)


def by_csv(rows, path, delimiter, ends, bom, quoting=csv.QUOTE_MINIMAL):
    with open(path, "w", newline="", encoding="utf-8-sig" if bom else "utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=ends, quoting=quoting)
        writer.writerows([("a", "b"), *rows])


def by_pandas(rows, path, delimiter, ends, bom):
    frame = pytest.importorskip("pandas").DataFrame(rows, columns=["a", "b"])
    frame.to_csv(path, sep=delimiter, index=False, lineterminator=ends, encoding="utf-8-sig" if bom else "utf-8")


def by_polars(rows, path, delimiter, ends, bom):
    frame = pytest.importorskip("polars").DataFrame(rows, schema=["a", "b"], orient="row")
    frame.write_csv(path, separator=delimiter, line_terminator=ends, include_bom=bom)


def by_duckdb(rows, path, delimiter, ends, bom):
    relation = pytest.importorskip("duckdb").from_arrow(arrow(rows))
    relation.write_csv(str(path), sep=delimiter, header=True)


WRITERS = {"csv": by_csv, "csv in quotes": functools.partial(by_csv, quoting=csv.QUOTE_ALL)}
WRITERS |= {"pandas": by_pandas, "polars": by_polars, "duckdb": by_duckdb}


@pytest.mark.parametrize("writer", slow_but(WRITERS, "csv", "pandas"))
@fuzz(1 / 4)
@given(rows=TEXTS, delimiter=st.sampled_from(",;\t"), ends=st.sampled_from(["\n", "\r\n"]), bom=st.booleans())
def test_delimited_text_comes_back(tmp_path, writer, rows, delimiter, ends, bom):
    """With delimiters, quotes and line breaks in cells, and in the dialects of spreadsheets."""
    for name in ("t.csv", *["t.tsv"] * (delimiter == "\t")):
        WRITERS[writer](rows, tmp_path / name, delimiter, ends, bom)
        assert list(zip(*read_table(tmp_path / name).values(), strict=True)) == rows


def frame(module, rows):
    return pytest.importorskip(module).DataFrame({"a": [text for text, _ in rows], "b": [number for _, number in rows]})


def arrow(rows):
    return pytest.importorskip("pyarrow").table({"a": [text for text, _ in rows], "b": [number for _, number in rows]})


def json_lines(rows, path):
    lines = (json.dumps({"a": text, "b": number}, ensure_ascii=len(text) % 2 > 0) for text, number in rows)
    path.write_text("\n".join(lines), encoding="utf-8")


def arrow_stream(rows, path):
    table = arrow(rows)
    with pytest.importorskip("pyarrow").ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


TYPED = {
    "json.jsonl": json_lines,
    "pandas.jsonl": lambda rows, path: frame("pandas", rows).to_json(
        path, orient="records", lines=True, double_precision=15
    ),
    "pyarrow.parquet": lambda rows, path: pytest.importorskip("pyarrow.parquet").write_table(arrow(rows), path),
    "pandas.parquet": lambda rows, path: frame("pandas", rows).to_parquet(path),
    "pyarrow.feather": lambda rows, path: pytest.importorskip("pyarrow.feather").write_feather(arrow(rows), path),
    "stream.arrow": arrow_stream,
    "polars.ndjson": lambda rows, path: frame("polars", rows).write_ndjson(path),
    "polars.parquet": lambda rows, path: frame("polars", rows).write_parquet(path),
    "duckdb.parquet": lambda rows, path: pytest.importorskip("duckdb").from_arrow(arrow(rows)).write_parquet(str(path)),
}


@pytest.mark.parametrize("name", slow_but(TYPED, "json.jsonl", "pyarrow.parquet"))
@fuzz(1 / 4)
@given(rows=st.lists(st.tuples(TEXT, st.integers(0, 10**6).map(lambda number: number / 64)), min_size=1, max_size=12))
def test_text_and_numbers_come_back(tmp_path, name, rows):
    TYPED[name](rows, tmp_path / name)
    assert list(zip(*read_table(tmp_path / name).values(), strict=True)) == rows


@fuzz(1 / 2)
@given(rows=st.lists(st.tuples(TEXT, st.floats(allow_nan=False)), min_size=1, max_size=12), data=st.data())
def test_damaged_parquet_is_refused_or_read(tmp_path, rows, data):
    path = tmp_path / "t.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(arrow(rows), path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    table, error = attempt(lambda: read_table(path), names=str(path))
    assert (table is None) == isinstance(error, DataError)


WORD = st.text("abé '+", min_size=1, max_size=8).filter(str.strip)
BAD = {
    "csv": [b"a", b"a,b,c", b'"a"b,c', b'"a,b', b'a,"b', b"a,\xff", b"a\0,b", b"a\rb,c"],
    "tsv": [b"a", b"a\tb\tc", b'"a" b\tc', b'"a\tb', b"\xe9\tb"],
    "jsonl": [
        *(b'{"a": "x"', b"[1]", b'{"a": "x", "b": null}', b'{"a": "x"}', b'{"a": "\\ud800", "b": ""}', b"\xff"),
        *(b'{"a": [], "b": ""}', b'{"a": "\\u0000", "b": ""}', b'{"a": NaN, "b": ""}', b"[" * 100_000, b"9" * 5000),
    ],
}


@pytest.mark.parametrize("ending", BAD)
@fuzz(1 / 2)
@given(rows=st.lists(st.tuples(WORD, WORD), min_size=1, max_size=8), data=st.data())
def test_a_bad_row_is_refused_with_its_line_or_counted(tmp_path, ending, rows, data):
    at = data.draw(st.integers(0, len(rows)))
    mark = "\t" if ending == "tsv" else ","
    lines = [mark.join(row).encode() for row in [("a", "b"), *rows]]
    if ending == "jsonl":
        lines = [json.dumps({"a": a, "b": b}).encode() for a, b in [("", ""), *rows]]
    lines.insert(1 + at, data.draw(st.sampled_from(BAD[ending])))
    path = tmp_path / (f"t.{ending}" + data.draw(st.sampled_from(["", ".gz"])))
    content = b"\n".join(lines)
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    with pytest.raises(DataError, match=rf"{path.name}, line {2 + at}: "):
        read_table(path)
    table = read_table(path, skip_bad_rows=True)
    assert list(zip(*table.values(), strict=True))[ending == "jsonl" :] == rows
    assert table.skipped == 1


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


@fuzz(1 / 2)
@given(data=st.data())
@pytest.mark.parametrize("ending", HEADS)
def test_any_bytes(tmp_path, ending, data):
    path = tmp_path / f"t.{ending}"
    path.write_bytes(data.draw(st.sampled_from(HEADS[ending])) + data.draw(ANY))
    skip = data.draw(st.booleans())
    table, error = attempt(lambda: read_table(path, skip_bad_rows=skip), names=str(path))
    if table is None:
        assert isinstance(error, DataError)
        return
    assert skip or not table.skipped
    for column in table.values():
        assert len(column) == len(table.lines)
        assert all("\0" not in item and item.encode() is not None for item in column if isinstance(item, str))
    rows = list(table_rows(path, read_header(path), bad=BadRows(path, skip)))
    assert [number for number, _ in rows] == table.lines.tolist()


@fuzz()
@given(content=ANY, skip=st.booleans())
def test_any_lines(tmp_path, content, skip):
    """Clean lines come back as they are; the rest is refused or counted."""
    path = tmp_path / "lines.txt"
    path.write_bytes(content)
    bad = BadRows(path, skip)
    found, error = attempt(lambda: list(numbered_lines(path, bad)), names=str(path))
    raw = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if raw[-1] == b"" and content != b"\xef\xbb\xbf":
        raw.pop()
    clean = [(at, line) for at, line in enumerate(raw, 1) if b"\0" not in line and decodes(line)]
    if not skip and len(clean) < len(raw):
        first = min({*range(1, len(raw) + 1)} - {at for at, _ in clean})
        assert f"{path}, line {first}: " in str(error)
    else:
        assert found == [(at, line.decode().removesuffix("\r")) for at, line in clean]
        assert bad.count == len(raw) - len(clean)
        assert list(Corpus([path], skip_bad_rows=skip).passages()) == [line for _, line in found if line.strip()]


def decodes(line):
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
