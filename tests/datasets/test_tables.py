"""Tables of the user's own."""

import csv
import gzip
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten.datasets import read_table
from jaxwhiten.datasets.tables import read_header, table_rows
from jaxwhiten.errors import DataError, InputError

COLUMNS = {"anchor": "question1", "positive": "question2"}
EXPECTED = {"anchor": ["What is “it”?", 'a "quote'], "positive": ["Où?", "b,c"]}


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def example_file(folder: Path, name: str) -> Path:
    rows = list(zip(["7", "8"], *EXPECTED.values(), strict=True))
    if "jsonl" in name:
        text = "\n\n".join(json.dumps(dict(zip(["id", *COLUMNS.values()], row, strict=True))) for row in rows)
    elif "csv" in name:
        text = 'id,question1,question2\r\n7,What is “it”?,Où?\r\n\r\n8,"a ""quote","b,c"\r\n'
    else:
        text = "id\tquestion1\tquestion2\n" + "".join("\t".join(row) + "\n" for row in rows)
    return write(folder / name, text)


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.TXT", "a.csv", "a.csv.gz", "a.jsonl", "a.ndjson.gz"])
def test_text_formats(tmp_path, name):
    if "ndjson" in name:
        path = write(tmp_path / name, example_file(tmp_path, "a.jsonl").read_bytes())
    else:
        path = example_file(tmp_path, name)
    table = read_table(path, COLUMNS)
    assert table == EXPECTED
    assert table.skipped == 0
    assert read_header(path) == ["id", "question1", "question2"]
    assert list(read_table(path)) == ["id", "question1", "question2"]
    assert len(table.lines) == 2


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    columns = {"question1": EXPECTED["anchor"], "question2": EXPECTED["positive"], "score": [0.5, 1.0]}
    pq.write_table(pa.table({**columns, "nested": [[1], [2]]}), path)
    assert read_table(path, COLUMNS) == EXPECTED
    assert read_table(path, {"score": "score"}) == {"score": [0.5, 1.0]}
    with pytest.raises(DataError, match=r"line 1: 'nested' is a list"):
        read_table(path)
    pq.write_table(pa.table({"question1": ["a", None, "c"], "question2": ["a", "b", "c"]}), path)
    with pytest.raises(DataError, match=r"a.parquet, line 2: 'question1' is null"):
        read_table(path, COLUMNS)
    table = read_table(path, COLUMNS, skip_bad_rows=True)
    assert table["anchor"] == ["a", "c"]
    assert table.lines.tolist() == [1, 3]
    assert table.skipped == 1


@pytest.mark.parametrize("mark", [",", ";"])
def test_the_header_of_a_csv_file_shows_what_separates_its_cells(tmp_path, mark):
    path = tmp_path / "rows.csv"
    path.write_text(f'text{mark}"no, more; here"{mark}id\n"a, b; c\td"{mark}e{mark}1\n')
    table = read_table(path)
    assert list(table) == ["text", "no, more; here", "id"]
    assert table["text"] == ["a, b; c\td"]


def by_pandas(rows, path, mark, **how):
    frame = pytest.importorskip("pandas").DataFrame(rows, columns=["a", "b"])
    frame.to_csv(path, sep=mark, index=False, **how)


def by_polars(rows, path, mark, **how):
    frame = pytest.importorskip("polars").DataFrame(rows, schema=["a", "b"], orient="row")
    frame.write_csv(path, separator=mark, **how)


def by_spreadsheet(rows, path, mark):
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=mark).writerows([("a", "b"), *rows])


WRITERS = {
    "pandas": by_pandas,
    "pandas, all in quotes": partial(by_pandas, quoting=csv.QUOTE_ALL),
    "pandas on Windows": partial(by_pandas, lineterminator="\r\n", encoding="utf-8-sig"),
    "polars": by_polars,
    "polars with a mark": partial(by_polars, include_bom=True, line_terminator="\r\n"),
    "a spreadsheet": by_spreadsheet,
}


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_common_programs_write_comes_back(tmp_path, writer, mark):
    rows = [
        ("two\nlines, and\n\nmore", "b"),
        ('say "hi"', "c\td"),
        ("", '""'),
        (" é; 北京,", 'ends with "'),
        ('"', "x\ny"),
    ]
    path = tmp_path / ("t.tsv" if mark == "\t" else "t.csv")
    WRITERS[writer](rows, path, mark)
    assert list(zip(*read_table(path).values(), strict=True)) == rows


def test_rows_know_their_lines(tmp_path):
    table = read_table(write(tmp_path / "a.tsv", "x\ty\n1\t2\n\n3\t4\n"))
    assert table.lines.tolist() == [2, 4]
    assert table.where(1) == f"{tmp_path / 'a.tsv'}, line 4"
    table = read_table(write(tmp_path / "a.csv", 'x,y\n1,"two\nlines"\n3,4\n'))
    assert table["y"] == ["two\nlines", "4"]
    assert table.lines.tolist() == [3, 4]


def test_a_value_of_another_kind_is_named_with_its_line(tmp_path):
    table = read_table(write(tmp_path / "a.jsonl", '{"t": "a", "n": "1.5"}\n{"t": 3, "n": "many"}\n'))
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: t is 3, not text"):
        table.texts("t")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: the n 'many' is not a number"):
        table.numbers("n")


@pytest.mark.parametrize(
    ("name", "text", "message", "kept"),
    [
        ("a.tsv", "x\ty\n1\t2\n3\n5\t6\n", r"a.tsv, line 3: 1 columns, expected 2", ["1", "5"]),
        ("a.tsv", "x\ty\n1\t2\n3\t4\t5\n5\t6\n", r"a.tsv, line 3: 3 columns, expected 2", ["1", "5"]),
        ("a.tsv", b"x\ty\n1\t2\n3\t\xff\n5\t6\n", r"a.tsv, line 3: not UTF-8", ["1", "5"]),
        ("a.csv", 'x,y\n1,2\n3,"a"b\n5,6\n', r"a.csv, line 3: .*quotation marks", ["1", "5"]),
        ("a.csv", "x,y\n1,2\n3\n5,6\n", r"a.csv, line 3: 1 columns, expected 2", ["1", "5"]),
        ("a.jsonl", '{"x": 1, "y": 2}\n{"x": 3}\n{"x": 5, "y": 6}\n', r"a.jsonl, line 2: no key 'y'", [1, 5]),
        ("a.jsonl", '{"x": 1, "y": 2}\n{"x": 3,\n{"x": 5, "y": 6}\n', r"a.jsonl, line 2: not valid JSON", [1, 5]),
        ("a.jsonl", '{"x": 1, "y": 2}\n[3]\n{"x": 5, "y": 6}\n', r"line 2: not a JSON object", [1, 5]),
        ("a.jsonl", '{"x": 1, "y": 2}\n{"x": null, "y": 1}\n{"x": 5, "y": 6}\n', r"line 2: 'x' is null", [1, 5]),
        ("a.jsonl", '{"x": 1, "y": 2}\n{"x": [], "y": 1}\n{"x": 5, "y": 6}\n', r"line 2: 'x' is a list", [1, 5]),
        ("a.jsonl", '{"x": 1, "y": 2}\n{"x": "\\ud800", "y": 1}\n{"x": 5, "y": 6}\n', r"line 2: .*surrogate", [1, 5]),
        ("a.jsonl", '{"x": 1, "y": 2}\n' + "[" * 100_000 + '\n{"x": 5, "y": 6}\n', r"line 2: not valid JSON", [1, 5]),
        ("a.jsonl", '{"x": 1, "y": 2}\n' + "9" * 5000 + '\n{"x": 5, "y": 6}\n', r"line 2: not valid JSON", [1, 5]),
    ],
)
def test_bad_rows_are_refused_or_counted(tmp_path, name, text, message, kept):
    path = write(tmp_path / name, text)
    with pytest.raises(DataError, match=message):
        read_table(path)
    table = read_table(path, skip_bad_rows=True)
    assert table["x"] == kept
    assert table.skipped == 1


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_missing_column_lists_those_that_are_there(tmp_path, name):
    path = example_file(tmp_path, name)
    with pytest.raises(DataError, match=r"line 1: no (column|key) 'question3'"):
        read_table(path, {"anchor": "question3"})


def test_ambiguous_column(tmp_path):
    with pytest.raises(DataError, match="more than one column 'x'"):
        read_table(write(tmp_path / "a.tsv", "x\tx\n1\t2\n"))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.parquet"])
def test_empty_and_missing_files(tmp_path, name):
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / name)
    with pytest.raises(DataError, match=name):
        read_table(write(tmp_path / name, b""))


def test_header_only(tmp_path):
    table = read_table(write(tmp_path / "a.tsv", "x\ty\n"))
    assert table == {"x": [], "y": []}
    assert table.lines.shape == (0,)


def test_unknown_ending(tmp_path):
    with pytest.raises(InputError, match=r"a.tvs: '.tvs'. Did you mean '.tsv'"):
        read_table(write(tmp_path / "a.tvs", "x"))


def test_a_million_rows_take_seconds(tmp_path):
    """200,000 rows within 4 s of this machine's CPU leaves a million within 20 s; it takes about a quarter of that."""
    lines = [f"a premise of some length number {i}\ta hypothesis {i}\tneutral" for i in range(200_000)]
    path = write(tmp_path / "a.tsv.gz", "x\ty\tz\n" + "\n".join(lines))
    start = time.process_time()
    table = read_table(path)
    assert time.process_time() - start < 4
    assert len(table["x"]) == 200_000
    np.testing.assert_array_equal(table.lines, np.arange(2, 200_002))


@pytest.mark.parametrize("place", [2, -1])
def test_places_outside_of_a_parquet_dictionary_are_an_error(place):
    pa = pytest.importorskip("pyarrow")
    column = pa.DictionaryArray.from_arrays(pa.array([0, place], pa.int32()), pa.array(["a", "b"]), safe=False)
    with pytest.raises(pa.ArrowException):
        _values(column)


def test_a_parquet_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="the extra data")
    import pyarrow.parquet as pq

    one = pa.array(["x" * 50_000])
    batch = pa.table({"text": pa.chunked_array([one] * 50)})
    path = tmp_path / "bomb.parquet"
    with pq.ParquetWriter(path, batch.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(120):
            writer.write_table(batch)
    with pytest.raises(DataError, match=r"unpacks to 300,\d+,\d+ bytes, over 200 times its size"):
        next(table_rows(path, ["text"]))


@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_a_text_that_repeats_in_parquet_is_held_once(tmp_path, kind):
    pa = pytest.importorskip("pyarrow", reason="the extra data")
    import pyarrow.parquet as pq

    table = pa.table({"text": pa.array(["a long text " * 1000] * 500, getattr(pa, kind)())})
    pq.write_table(table, tmp_path / "t.parquet")
    assert len({id(text) for _, (text,) in list(table_rows(tmp_path / "t.parquet", ["text"]))}) == 1
