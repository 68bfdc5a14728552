"""An index that lives: `add`, `remove`, Ctrl-C, and `search` from elsewhere."""

import json
import shutil

import pytest

from jaxwhiten import Encoder
from jaxwhiten.encoding import store
from jaxwhiten.search import build_index, load_index
from jaxwhiten.views.view import together
from tests.commands.conftest import TEXTS
from tests.sentences import generated

MODEL = ["--pooling", "mean", "--max-length", "32"]


@pytest.fixture
def docs(things):
    return things / "docs.csv"


@pytest.fixture
def index(things):
    return things / "docs.db"


def first(run, index, query):
    return run("search", index, query, "-k", 1).out.split("\t")[1]


def change(run, index, command, content, *more, name="new.csv"):
    path = index.parent / name
    path.write_text(content, encoding="utf-8")
    return run(command, index, *(["--file"] if command == "remove" else []), path, *more)


def test_added_documents_replace_those_with_their_ids_and_removed_ones_are_counted(run, index):
    """The index remembers its ID column."""
    assert first(run, index, TEXTS[3]) == "doc-3"
    done = change(run, index, "add", "key,text\nnew,something new\ndoc-2,another thing\ndoc-4, \n")
    assert (done.code, "1 text added, 1 replaced (1 blank text skipped" in done.out) == (0, True), done
    assert [first(run, index, text) for text in ("something new", "another thing")] == ["new", "doc-2"]
    done = run("remove", index, "doc-0", "doc-5", "doc-9", "doc-0")
    assert (done.code, "2 texts removed, 1 ID not in the index, 6 in all" in done.out) == (0, True), done
    done = change(run, index, "remove", "doc-1\ndoc-9\n", "--strict", name="gone.txt")
    assert (done.code, "No document 'doc-9' in the index" in done.err) == (2, True)
    assert change(run, index, "remove", "doc-1\ndoc-9\n", name="gone.txt").code == 0
    assert change(run, index, "remove", "key\ndoc-6\n", "--id", "key", name="gone.csv").code == 0
    assert sorted(load_index(index).ids.tolist()) == ["doc-2", "doc-3", "doc-4", "new"]
    (found,) = (json.loads(line) for line in run("search", index, TEXTS[3], "--top", 1, "--json").out.splitlines())
    assert found["hits"][0]["id"] == "doc-3"


def test_columns_are_remembered_and_filter(run, tiny_model, tmp_path):
    index, table = tmp_path / "docs.db", tmp_path / "docs.csv"
    table.write_text("text,year,a b\none,2019,x\ntwo,2024,y\nthree,,\n")
    assert run("index", table, "-o", index, "--keep", "year", "--keep", "a b", "--model", tiny_model, *MODEL).code == 0
    table.write_text("text,year,a b\nfour,2026,z\n")
    done = run("add", index, table)
    assert (done.code, "1 text added, 4 in all" in done.out) == (0, True), done.err
    assert [load_index(index)[row].metadata["year"] for row in range(4)] == [2019, 2024, None, 2026]
    condition = "year > 2020 and \"a b\" <> 'y'"
    found = run("search", index, "a", "--where", condition, "--json")
    assert {hit["text"] for hit in json.loads(found.out)["hits"]} == {"four"}
    table.write_text("text,year,a b\nfive,old,007\nsix,7,7\n")
    assert run("add", index, table).code == 0  # the first table has decided
    assert [load_index(index)[row].metadata for row in (4, 5)] == [
        {"year": "old", "a b": "007"},
        {"year": 7, "a b": "7"},
    ]


@pytest.mark.parametrize("command", ["index", "add"])
def test_an_interrupt_changes_nothing_and_what_was_encoded_is_not_encoded_again(
    run, index, docs, tiny_model, monkeypatch, command
):
    table = docs.with_name("more.tsv")
    texts = generated(7, seed=9)
    table.write_text("key\ttext\n" + "".join(f"doc-{i}\t{text}\n" for i, text in enumerate(texts)))
    words = ["add", index, table]
    if command == "index":
        words = ["index", table, "-o", index, "--id", "key", "--overwrite", "--model", tiny_model, *MODEL]
    seen, ends = [], [True]

    def ending(views, texts, *how):
        for block in together(views, texts, *how):
            seen.append(len(next(iter(block.values()))))
            yield block
            if ends:
                raise KeyboardInterrupt

    before = index.read_bytes()
    monkeypatch.setattr(store, "together", ending)
    monkeypatch.setattr(store, "BLOCK", 4)
    with pytest.raises(KeyboardInterrupt):
        run(*words)
    ends.clear()
    assert (index.read_bytes() == before, sorted(index.parent.glob("*docs.db*"))) == (True, [index])
    done = run(*words)
    assert (done.code, seen) == (0, [4, 3]), done.err
    assert run("search", index, texts[3], "--top", 1).out.split("\t")[2] == f"{texts[3]}\n"


def test_the_model_is_found_from_another_directory(run, tiny_model, corpus, tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    shutil.copytree(tiny_model, tmp_path / "real")
    (project / "model").symlink_to(tmp_path / "real")
    monkeypatch.chdir(project)
    assert run("index", corpus, "-o", "idx.db", "--model", "model", *MODEL).code == 0
    text = load_index("idx.db")[4].text
    monkeypatch.chdir(tmp_path)
    assert first(run, "project/idx.db", text) == "4"
    project.rename(tmp_path / "moved")
    assert first(run, "moved/idx.db", text) == "4"
    (tmp_path / "moved" / "model").rename(tmp_path / "elsewhere")
    assert first(run, "moved/idx.db", text) == "4"  # where the link led to
    (tmp_path / "real").rename(tmp_path / "gone")
    (tmp_path / "elsewhere").unlink()
    done = run("search", "moved/idx.db", text)
    assert (done.code, "specify its location with --model" in done.err) == (2, True)
    assert run("search", "moved/idx.db", text, "--model", "gone").code == 0


def test_texts_cannot_act_on_the_terminal(run, tiny_model, tmp_path):
    texts = ["a\n0.9999\t7\tforged", "\x1b]0;title\x07b", "c\u202ed", "日本\u3000é"]
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    ids = [f"{i}\x1b[2J" for i in range(4)]
    index = build_index(encoder.encode(texts), "jax", space=encoder.view.space, documents=texts, ids=ids)
    index.save(tmp_path / "idx.db")
    done = run("search", tmp_path / "idx.db", "a", "b\x1b", "-k", 4)
    assert len(done.out.splitlines()) == 2 * 5
    assert not {"\x1b", "\x07", "\u202e"} & set(done.out)
    assert r"a\n0.9999\t7\tforged" in done.out
    assert "日本\u3000é" in done.out
    assert json.loads(run("search", tmp_path / "idx.db", "a", "-k", 4, "--json").out)["hits"][0]["text"] in texts


def test_an_index_without_words_is_smaller_and_has_no_hybrid_search(run, corpus, tiny_model, tmp_path):
    with_words, without = tmp_path / "words.db", tmp_path / "none.db"
    for output, more in ((with_words, []), (without, ["--no-words"])):
        assert run("index", corpus, "-o", output, "--model", tiny_model, *MODEL, *more).code == 0
    assert run("search", with_words, "a man", "--hybrid").code == 0
    assert not load_index(without).has_words
    done = run("search", without, "a man", "--hybrid")
    assert (done.code, "has no words" in done.err) == (2, True), done
