"""One reader of tables: all commands read a table, or refuse it, alike."""

import bz2
import json

import pytest

from jaxwhiten.search import load_index

CSV = "id,title,body\n1,A man,plays a guitar.\n2,Two dogs,run.\n3,, \n4,The plan,was rejected.\n"
COMMANDS = {  # and what each says of a folder of tables
    "index": ("--no-cache --id id -o {out}/idx", "4 texts (1 blank text skipped"),
    "embed": ("--id id -o {out}/parts", "4 32-dimensional vectors"),
    "fit": ("--no-cache --moments {out}/m.safetensors", "moments of 4 rows"),
    "encode": ("-o {out}/x.npy", "5 32-dimensional vectors"),  # a vector for each row
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_compressed_tables_with_two_columns_of_text(command, run, tiny_model, tmp_path):
    folder, (options, told) = tmp_path / "tables", COMMANDS[command]
    folder.mkdir()
    (folder / "a.csv.bz2").write_bytes(bz2.compress(CSV.encode()))
    (folder / "none.csv").write_text("id,title,body\n")
    (folder / "z.jsonl").write_text(json.dumps({"id": "5", "title": "Short", "body": "too"}) + "\n")
    words = f"--column title --column body --model {tiny_model} --pooling mean {options.format(out=tmp_path)}"
    done = run(command, folder, *words.split())
    assert (done.code, told in done.out) == (0, True), done


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
