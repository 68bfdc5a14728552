"""Tables of the user's own: files of every format, rows in memory, and what is wrong with them."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten.datasets import numbered_lines, read_table
from jaxwhiten.datasets.tables import as_table, read_header, table_rows
from jaxwhiten.errors import DataError, InputError

COLUMNS = {"anchor": "question1", "positive": "question2"}
EXPECTED = {"anchor": ["What is “it”?", 'a "quote'], "positive": ["Où?", "b,c"]}
ROWS = [dict(zip(["id", *COLUMNS.values()], row, strict=True)) for row in zip("78", *EXPECTED.values(), strict=True)]
PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(PACKERS.get(path.suffix, bytes)(data))
    return path


TEXTS = {
    "jsonl": "\n\n".join(map(json.dumps, ROWS)),
    "csv": 'id,question1,question2\r\n7,What is “it”?,Où?\r\n\r\n8,"a ""quote","b,c"\r\n',
    "tsv": 'id\tquestion1\tquestion2\n7\tWhat is “it”?\tOù?\n8\t"a ""quote"\tb,c\n',
}


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.TXT", "a.csv", "a.csv.bz2", "a.jsonl", "a.ndjson.xz"])
def test_text_formats(tmp_path, name):
    kind = "jsonl" if "json" in name else "csv" if "csv" in name else "tsv"
    path = write(tmp_path / name, TEXTS[kind])
    table = read_table(path, COLUMNS)
    assert (table, table.skipped) == (EXPECTED, 0)
    assert table.lines.tolist() == ([2, 3] if kind == "tsv" else [2, 4] if kind == "csv" else [1, 3])
    assert read_header(path) == list(read_table(path)) == ["id", "question1", "question2"]


def test_parquet_and_arrow(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["a", None, "c"], "score": [0.5, 1.0, 2.0], "nested": [[1], [2], [3]]}), path)
    assert read_table(path, {"score": "score"}) == {"score": [0.5, 1.0, 2.0]}
    with pytest.raises(DataError, match="1: 'nested'"):
        read_table(path, {"x": "nested"})
    with pytest.raises(DataError, match=r"line 2: 'x'"):
        read_table(path, {"x": "x"})
    table = read_table(path, {"x": "x"}, skip_bad_rows=True)
    assert (table["x"], table.lines.tolist(), table.skipped) == (["a", "c"], [1, 3], 1)
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["a", "b"]), safe=False)
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema({"x": column.type})) as writer:
        writer.write_batch(pa.record_batch({"x": column}))
    with pytest.raises(DataError, match=r"a\.arrow: "):
        read_table(tmp_path / "a.arrow")


def test_a_small_parquet_file_does_not_fill_the_memory(tmp_path):
    """A text of 2 MB, written once, in each of 1000 rows."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["a " * 1_000_000]))
    pq.write_table(
        pa.table({"text": texts}), tmp_path / "a.parquet", compression="zstd", dictionary_pagesize_limit=1 << 30
    )
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    with pytest.raises(DataError, match=r"a\.parquet: .*1000 rows contain more than 1024 MB of text"):
        read_table(tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": texts.slice(0, 3)}), tmp_path / "b.parquet")
    assert [len(text) for text in read_table(tmp_path / "b.parquet")["text"]] == [2_000_000] * 3


def test_columns_are_joined(tmp_path):
    path = write(tmp_path / "a.csv", "title,body,c+d\nA,plays,x\n,runs,y\n")
    rows = [(2, ["A\nplays", "x"]), (3, ["runs", "y"])]
    assert list(table_rows(path, ["title+body", "c+d"])) == rows
    path = write(tmp_path / "b.jsonl", '{"title": "A"}\n{"title": "B", "body": "c"}\n')
    with pytest.raises(DataError, match=r"1: .*'body'"):
        list(table_rows(path, ["title+body"]))


def test_a_value_of_another_kind_is_named_with_its_line(tmp_path):
    table = read_table(write(tmp_path / "a.jsonl", '{"t": "a", "n": "1.5"}\n{"t": 3, "n": "many"}\n'))
    with pytest.raises(DataError, match="line 2: t is"):
        table.texts("t")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: n is 'many', expected a finite number"):
        table.numbers("n")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_empty_and_missing_files(tmp_path, name):
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / name)
    with pytest.raises(DataError, match=name):
        read_table(write(tmp_path / name, b""))
    with pytest.raises(InputError, match=r"'.tvs'. Did you mean '.tsv'"):
        read_table("a.tvs")


def test_lines_that_cannot_be_read_are_named(tmp_path):
    data = gzip.compress(bytes(range(32, 127)) * 100 + b"\n" + b"x\n" * 1000)
    (tmp_path / "cut.tsv.gz").write_bytes(data[:-8])
    for name, words in (
        ("cut.tsv.gz", r"cut\.tsv\.gz, line \d+: "),
        ("nowhere", "No such file"),
        (".", "cannot be read"),
    ):
        with pytest.raises(DataError, match=words):
            list(numbered_lines(tmp_path / name))


MEMORY = {
    "dicts": lambda rows: rows,
    "a stream": iter,
    "tuples": lambda rows: [tuple(row.values()) for row in rows],
    "columns": lambda rows: {name: np.array([row[name] for row in rows]) for name in rows[0]},
    "pandas": lambda rows: pytest.importorskip("pandas").DataFrame(rows, index=[5, 3]),
    "polars": lambda rows: pytest.importorskip("polars").DataFrame(rows),
    "Arrow": lambda rows: pytest.importorskip("pyarrow").Table.from_pylist(rows),
    "datasets": lambda rows: pytest.importorskip("datasets").Dataset.from_list(rows),
    "an Arrow stream": lambda rows: ArrowStream(pytest.importorskip("pyarrow").Table.from_pylist(rows)),
}


class ArrowStream:
    """As a query of DuckDB shows itself: names of columns, and rows as Arrow streams them."""

    def __init__(self, table):
        self.__arrow_c_stream__, self.columns = table.__arrow_c_stream__, table.column_names


@pytest.mark.parametrize("kind", MEMORY)
def test_rows_in_memory(kind):
    rows = [{"t": "a", "n": 1.5}, {"t": "b", "n": 2.0}]
    table = as_table(MEMORY[kind](rows))
    assert list(table.values()) == [["a", "b"], [1.5, 2.0]]
    assert list(table) == (["column1", "column2"] if kind == "tuples" else ["t", "n"])


@pytest.mark.parametrize("value", [None, float("nan"), [1], b"x"])
def test_bad_rows_in_memory_are_refused_or_counted(value):
    table = as_table([{"t": "a", "other": value}, {"t": value, "other": value}])
    with pytest.raises(DataError, match=r"rows, row 1: 't' is"):
        read_table(table, {"t": "t"})
    read = read_table(table, {"t": "t"}, skip_bad_rows=True)
    assert (read, read.skipped) == ({"t": ["a"]}, 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (7, "Expected rows"),
        (b"text", "Expected rows"),
        ([], "at least one row"),
        ([("a", "b"), ("c",)], "Row 1: expected a tuple of 2"),
        ([{"a": "b"}, ("c",)], "Row 1: expected a dict"),
        ({"a": ["x"], "b": ["y", "z"]}, "columns of one length"),
        ({1: ["x"], "1": ["y"]}, "more than one column '1'"),
    ],
)
def test_what_are_no_rows(rows, message):
    with pytest.raises(InputError, match=message):
        as_table(rows)
