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


def test_a_folder_of_compressed_tables_with_two_columns_of_text(answers, tmp_path):
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


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_columns_are_kept_as_metadata(kind, run, tiny_model, tmp_path):
    rows = [{"text": "A dog.", "n": 1, "tags": ["x"]}, {"text": " ", "n": 2}, {"text": "A cat.", "n": None, "tags": []}]
    path = tmp_path / f"table.{kind}"
    expected = [{"text": "A dog.", "n": 1, "tags": ["x"]}, {"text": "A cat.", "n": None, "tags": []}]
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist([{**row, "raw": b"x"} for row in rows]), path)
    keep, model = ("--keep", "n", "--keep", "tags", "--keep", "text"), ("--model", tiny_model, "--pooling", "mean")
    words = ("--column", "text", *keep, *model, "-o", tmp_path / "idx")
    assert run("index", path, *words).code == 0
    assert [document.metadata for document in load_index(tmp_path / "idx")] == expected
    assert run("add", tmp_path / "idx", path, "--column", "text").code == 0
    assert [document.metadata for document in load_index(tmp_path / "idx")] == 2 * expected
    for wrong, message in {"nope": "'nope'", **({"raw": "binary"} if kind == "parquet" else {})}.items():
        done = run("index", path, "--column", "text", "--keep", wrong, "--overwrite", "-o", tmp_path / "idx")
        assert message in done.err
