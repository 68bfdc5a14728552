"""One reader of tables: all commands read a table, or refuse it, alike."""

import bz2
import json
import shutil

import pytest

from jaxwhiten.search import load_index

ROWS = [
    ("1", "A man", "plays a guitar."),
    ("2", "Two dogs", "run."),
    ("3", "", " "),
    ("4", "The plan", "was rejected."),
]
CSV = "id,title,body\n" + "".join(f"{id},{title},{body}\n" for id, title, body in ROWS)
COMMANDS = {
    "index": ("--no-cache", "--id", "id", "-o", "{out}/idx"),
    "embed": ("--id", "id", "-o", "{out}/parts"),
    "fit": ("--no-cache", "--moments", "{out}/m.safetensors"),
    "encode": ("-o", "{out}/x.npy"),
}


@pytest.fixture
def answers(run, tiny_model, tmp_path):
    """What each command answers to a table."""

    def call(table, *words):
        out, found = tmp_path / "out", []
        for command, options in COMMANDS.items():
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            how = [word.format(out=out) for word in options]
            found.append(run(command, table, *words, "--model", tiny_model, "--pooling", "mean", *how))
        return found

    return call


def test_a_folder_of_compressed_tables_with_two_columns_of_text(run, answers, tiny_model, tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "a.csv.bz2").write_bytes(bz2.compress(CSV.encode()))
    (folder / "none.csv").write_text("id,title,body\n")
    (folder / "z.jsonl").write_text(json.dumps({"id": "5", "title": "Short", "body": "too"}) + "\n")
    words = ("--column", "title", "--column", "body")
    index, embed, fit, encode = answers(folder, *words)
    assert [done.code for done in (index, embed, fit, encode)] == [0] * 4
    assert "4 texts (1 blank text skipped" in index.out
    assert "4 32-dimensional vectors" in embed.out
    assert "moments of 4 rows" in fit.out
    assert "5 32-dimensional vectors" in encode.out  # a vector for each row
    flags = ("--model", tiny_model, "--pooling", "mean", "--no-cache", "-o", tmp_path / "idx")
    assert run("index", folder, *words, *flags).code == 0
    assert [document.text for document in load_index(tmp_path / "idx")][:2] == [
        "A man\nplays a guitar.",
        "Two dogs\nrun.",
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_are_kept_as_metadata(kind, run, tiny_model, tmp_path):
    rows = [{"text": "A dog.", "n": 1, "tags": ["x"]}, {"text": " ", "n": 2}, {"text": "A cat.", "n": None, "tags": []}]
    path = tmp_path / f"table.{kind}"
    expected = [{"n": 1, "tags": ["x"]}, {"n": None, "tags": []}]
    if kind == "csv":
        path.write_text("text,n,tags\nA dog.,1,x\n ,2,\nA cat.,,\n")
        expected = [{"n": "1", "tags": "x"}, {"n": "", "tags": ""}]
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist([{**row, "raw": b"x"} for row in rows]), path)
    keep, model = ("--keep", "n", "--keep", "tags"), ("--model", tiny_model, "--pooling", "mean")
    words = ("--column", "text", *keep, *model, "-o", tmp_path / "idx")
    assert run("index", path, *words).code == 0
    assert [document.metadata for document in load_index(tmp_path / "idx")] == expected
    done = run("search", tmp_path / "idx", "A dog.", "--top", "1", "--json")
    assert json.loads(done.out)["hits"][0]["metadata"] == expected[0]
    assert run("add", tmp_path / "idx", path, "--column", "text").code == 0
    assert [document.metadata for document in load_index(tmp_path / "idx")] == 2 * expected
    names = {"nope": "'nope'"}
    for wrong, message in {**names, **({"raw": "binary"} if kind == "parquet" else {})}.items():
        done = run("index", path, "--column", "text", "--keep", wrong, "--overwrite", "-o", tmp_path / "idx")
        assert message in done.err


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"id,title,text\n1,a,b\n2,c\n", "t.csv, line 3: 2 columns, expected 3."),
        ("t.csv", b"id,text\n1,a\xff\n", "t.csv, line 2: 'text': not UTF-8"),
        ("t.jsonl", b'{"id": 1, "text": null}\n', "t.jsonl, line 1: 'text' is null, expected text or a number."),
        ("t.jsonl", b'{"id": 1, "text": 3}\n', "t.jsonl, line 1: text: 3 is not text."),
        ("t.csv", b"id|text\n1|a\n", "t.csv, line 1: no column 'text'; the columns are id|text."),
        ("t.csv.xz", b"\xfd7zXZ\0 damaged", "t.csv.xz, line 1: truncated or damaged compressed file"),
        ("t.csv", b"id,text\n", "t.csv: contains no texts."),
    ],
)
def test_all_refuse_a_table_alike(answers, tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    for done in answers(tmp_path / name, "--column", "text"):
        assert done.code == 2
        assert message in done.err


@pytest.mark.slow
def test_a_first_row_is_not_lost_as_a_header(run, answers, tiny_model, tmp_path):
    """One rule for all: a cell of four words, or a number beside text, is no name of a column."""
    (tmp_path / "t.csv").write_text("A man plays a guitar.,Somebody makes music.\nTwo dogs run.,A cat sleeps.\n")
    words = ("--model", tiny_model, "--steps", 1, "-o", tmp_path / "tuned")
    refused = [*answers(tmp_path / "t.csv"), run("train", tmp_path / "t.csv", *words), run("score", tmp_path / "t.csv")]
    for done in refused:
        assert (done.code, "t.csv, line 1: 'A man plays a guitar., Somebody makes music.' looks" in done.err) == (
            2,
            True,
        )
    (tmp_path / "t.csv").write_text("0,1\na man,a cat\nthe sea,a dog\n")  # as pandas names columns
    assert run("train", tmp_path / "t.csv", *words, "--held-out", 0, "--batch-size", 2).code == 0


def test_an_id_is_text_or_an_integer(answers, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"id": 1.5, "text": "a"}\n')
    for done in answers(tmp_path / "t.jsonl", "--column", "text")[:2]:
        assert "t.jsonl, line 1: id: 1.5 is not an ID, expected text or an integer." in done.err


def test_options_stand_anywhere(run, home):
    index = home / "idx.db"
    lines = [(index, "-k", 1, "dogs", "A man"), ("-k", 1, index, "dogs", "A man"), (index, "dogs", "-k", 1, "A man")]
    found = {run("search", *words).out for words in lines}
    assert [out.count("\n") for out in found] == [4]
