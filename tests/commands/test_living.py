"""`jaxwhiten index` on an index that lives: --id, --add, --update, --remove, and `search` from elsewhere."""

import errno
import json
import os
import re

import pytest
from filelock import FileLock

from jaxwhiten import Encoder
from jaxwhiten.encoding import store
from jaxwhiten.search import build_index, load_index
from jaxwhiten.search import index as index_module
from jaxwhiten.search.header import read_header
from jaxwhiten.views import View
from jaxwhiten.views.view import together
from tests.sentences import TEXTS, generated

MODEL = ["--pooling", "mean", "--max-length", "32"]


@pytest.fixture
def docs(tmp_path):
    """A table of seven texts with ids."""
    rows = "".join(f'doc-{number},"{text}"\n' for number, text in enumerate(TEXTS[:7]))
    (tmp_path / "docs.csv").write_text(f"key,text\n{rows}", encoding="utf-8")
    return tmp_path / "docs.csv"


@pytest.fixture
def index(run, docs, tiny_model, tmp_path):
    assert run("index", docs, "--id", "key", "-o", tmp_path / "idx", "--model", tiny_model, *MODEL).code == 0
    return tmp_path / "idx"


def first(run, index, query):
    return run("search", index, query, "-k", 1).out.split("\t")[1]


def change(run, index, how, content, *more, name="new.csv"):
    path = index.parent / name
    path.write_text(content, encoding="utf-8")
    return run("index", path, how, "-o", index, *more)


def test_ids_are_kept_by_add_update_and_remove(run, index):
    assert first(run, index, TEXTS[3]) == "doc-3"
    done = change(run, index, "--add", "key,text\nnew,something new\n", "--id", "key")
    assert (done.code, "1 text added, 8 in all" in done.out) == (0, True)
    done = change(run, index, "--update", "key,text\ndoc-2,another thing\ndoc-4, \n", "--id", "key")
    assert (done.code, "1 text replaced (1 blank text skipped" in done.out) == (0, True)
    done = run("index", "doc-0", "doc-5", "--remove", "-o", index)
    assert (done.code, "2 texts removed, 6 in all" in done.out) == (0, True)
    assert [first(run, index, text) for text in ("something new", "another thing", TEXTS[3])] == [
        "new",
        "doc-2",
        "doc-3",
    ]
    assert change(run, index, "--remove-file", "doc-1\n", name="gone.txt").code == 0
    assert change(run, index, "--remove-file", "key\ndoc-6\n", "--id", "key", name="gone.csv").code == 0
    assert load_index(index).ids.tolist() == ["doc-3", "doc-4", "new", "doc-2"]
    (found,) = (json.loads(line) for line in run("search", index, TEXTS[3], "--top", 1, "--json").out.splitlines())
    assert found["hits"][0]["id"] == "doc-3"


def test_numbers_never_change_meaning(run, index, corpus, tiny_model, tmp_path):
    assert run("index", corpus, "-o", index, "--overwrite", "--model", tiny_model, *MODEL).code == 0
    text = load_index(index).documents[17]
    assert run("index", "3", "5", "--remove", "-o", index).code == 0
    assert first(run, index, text) == "17"
    rows = json.dumps({"n": 17, "text": "replaced"})
    assert change(run, index, "--update", rows, "--id", "n", name="n.jsonl").code == 0
    assert first(run, index, "replaced") == "17"
    assert change(run, index, "--add", "one more\n", name="more.txt").code == 0
    assert first(run, index, "one more") == "600"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{docs} --add --id key", "Document 'doc-0' is already in the index: use --update to replace it"),
        ("{docs} --add --column text", "have their own IDs: pass --id"),
        ("{docs} --update --column text", "specify the ID column with --id"),
        ("{docs} --update --id text --column key", "No document 'A man"),
        ("doc-1 doc-9 --remove", "No document 'doc-9' in the index"),
        ("none.txt --remove", "No document 'none.txt' in the index"),
        ("{docs} --add --update --id key", "--update: not allowed with argument --add"),
        ("{docs} --add --id kye", "no column 'kye'"),
        ("{docs} --add --id key --bytes 8", "omit --bytes"),
        ("{texts} --add --id key", "a text file has no columns"),
        ("{docs} --remove-file --id key", "every document"),
        ("doc-1,doc-2 --remove", "No document 'doc-1,doc-2'"),
        ("{docs} --remove", "No document"),
        ("{docs} {texts} --add", "Expected one input, got 2"),
    ],
)
def test_mistakes_are_refused_and_change_nothing(run, index, docs, words, message):
    before = sorted(path.read_bytes() for path in index.iterdir() if path.name != ".lock")
    (docs.parent / "texts.txt").write_text("one\n")
    names = {"docs": docs, "texts": docs.parent / "texts.txt"}
    done = run("index", *(word.format(**names) for word in words.split()), "-o", index)
    errors = [line for line in done.err.splitlines() if not line.startswith("note: texts from ")]
    assert (done.code, message in done.err, len(errors)) == (2, True, 1), done.err
    assert sorted(path.read_bytes() for path in index.iterdir() if path.name != ".lock") == before


def test_an_id_twice_is_refused_before_a_model_is_loaded(run, docs, tmp_path):
    docs.write_text("key,text\na,one\na,two\n")
    done = run("index", docs, "--id", "key", "-o", tmp_path / "idx", "--model", tmp_path / "no model")
    assert (done.code, "'a' occurs twice" in done.err) == (2, True)


def test_the_index_is_not_locked_while_texts_are_encoded(run, index, docs, monkeypatch):
    encode, seen = View.__call__, []

    def unlocked(self, texts, **how):
        with FileLock(index / ".lock", timeout=0):
            seen.extend(texts)
        return encode(self, texts, **how)

    monkeypatch.setattr(View, "__call__", unlocked)
    done = run("index", docs, "--update", "--id", "key", "--column", "text", "--no-cache", "-o", index)
    assert done.code == 0, done.err
    assert len(seen) == 7


@pytest.mark.parametrize("change", [(), ("--add",), ("--update", "--id", "key")])
def test_what_was_encoded_before_an_interrupt_is_not_encoded_again(run, index, docs, tiny_model, monkeypatch, change):
    table = docs.with_name("more.tsv")
    texts = generated(7, seed=9)
    table.write_text("key\ttext\n" + "".join(f"doc-{i}\t{text}\n" for i, text in enumerate(texts)))
    words = ["--column", "text", *change, *([] if change else ["--overwrite", "--model", tiny_model, *MODEL])]
    if change == ("--add",):
        index = index.with_name("numbered")
        assert run("index", docs, "--column", "text", "-o", index, "--model", tiny_model, *MODEL).code == 0
    seen, ends = [], [True]

    def ending(views, texts, *how):
        for block in together(views, texts, *how):
            seen.append(len(next(iter(block.values()))))
            yield block
            if ends:
                raise KeyboardInterrupt

    monkeypatch.setattr(store, "together", ending)
    monkeypatch.setattr(store, "BLOCK", 4)
    with pytest.raises(KeyboardInterrupt):
        run("index", table, *words, "-o", index)
    ends.clear()
    done = run("index", table, *words, "-o", index)
    assert (done.code, seen) == (0, [4, 3]), done.err
    assert "note: resumed: 4 of 7 texts were encoded before" in done.err
    assert run("search", index, texts[3], "--top", 1).out.split("\t")[2] == f"{texts[3]}\n"


def test_the_model_is_found_from_another_directory(run, tiny_model, corpus, tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "model").symlink_to(tiny_model)
    monkeypatch.chdir(project)
    assert run("index", corpus, "-o", "idx", "--model", "model", *MODEL).code == 0
    text = load_index("idx").documents[4]
    monkeypatch.chdir(tmp_path)
    assert first(run, "project/idx", text) == "4"
    project.rename(tmp_path / "moved")
    assert first(run, "moved/idx", text) == "4"
    (tmp_path / "moved" / "model").rename(tmp_path / "elsewhere")
    assert first(run, "moved/idx", text) == "4"  # where the link led to
    header = tmp_path / "moved" / "idx"
    found = load_index(header)
    found.encoding["folder"] = str(tmp_path / "gone")
    found.save(header)
    done = run("search", "moved/idx", text)
    assert (done.code, "specify its location with --model" in done.err) == (2, True)
    assert run("search", "moved/idx", text, "--model", "elsewhere").code == 0


def test_texts_cannot_act_on_the_terminal(run, tiny_model, tmp_path):
    texts = ["a\n0.9999\t7\tforged", "\x1b]0;title\x07b", "c\u202ed", "日本\u3000é"]
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    ids = [f"{i}\x1b[2J" for i in range(4)]
    index = build_index(encoder.encode(texts), "jax", encoding=encoder.encoding(), documents=texts, ids=ids)
    index.save(tmp_path / "idx")
    done = run("search", tmp_path / "idx", "a", "b\x1b", "-k", 4)
    assert len(done.out.splitlines()) == 2 * 5
    assert not {"\x1b", "\x07", "\u202e"} & set(done.out)
    assert r"a\n0.9999\t7\tforged" in done.out
    assert "日本\u3000é" in done.out
    assert json.loads(run("search", tmp_path / "idx", "a", "-k", 4, "--json").out)["hits"][0]["text"] in texts


def test_the_size_is_that_of_the_folder_and_says_what_grows(run, tiny_model, tmp_path):
    idx = tmp_path / "idx"
    table = tmp_path / "texts.jsonl"
    table.write_text("".join(json.dumps({"text": f"text {n}", "year": n}) + "\n" for n in range(400)))
    of_model = ["--model", tiny_model, "--pooling", "mean", "--max-length", "32"]
    done = run("index", table, "-o", idx, "--keep", "year", "--bytes", "8", *of_model)
    assert done.code == 0, done.err
    sizes = {name: (idx / file["name"]).stat().st_size for name, file in read_header(idx).files.items()}
    found = re.search(r"(\d+) kB \(codes (\d+) kB, texts (\d+) kB, constants (\d+) kB\)", done.out)
    whole, codes, texts, constants = map(int, found.groups())
    assert whole == round(sum(sizes.values()) / 1e3)
    assert codes == round(sizes["codes.npy"] / 1e3)
    assert texts == round(sum(size for name, size in sizes.items() if name.startswith(("documents", "metadata"))) / 1e3)
    assert constants == round(sum(size for name, size in sizes.items() if name.endswith(".safetensors")) / 1e3)
    done = run("index", table, "-o", idx, "--keep", "year", "--add")
    (more,) = re.findall(r"800 in all, (\d+) kB \(codes", done.out)
    assert int(more) > whole + texts  # all texts again


def test_columns_that_an_index_keeps_are_named(run, tiny_model, tmp_path):
    idx = tmp_path / "idx"
    table = tmp_path / "texts.csv"
    table.write_text("text,year,a b\none,1,2\nothers,3,4\n")
    of_model = ["--model", tiny_model, "--pooling", "mean", "--max-length", "32"]
    assert run("index", table, "-o", idx, "--keep", "year,a b", *of_model).code == 0
    done = run("index", table, "-o", idx, "--add")
    assert done.err.endswith("the index stores metadata: pass its columns with --keep 'year,a b'.\n")


def test_a_folder_in_which_no_index_was_finished_can_be_used(run, tiny_model, corpus, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    of_model = ["--model", tiny_model, "--pooling", "mean", "--max-length", "32"]
    monkeypatch.setattr(index_module, "replace_files", full)
    assert run("index", corpus, "-o", tmp_path / "out", *of_model).code == 1
    monkeypatch.undo()
    assert os.listdir(tmp_path / "out") == [".lock"]
    done = run("fit", corpus, "-o", tmp_path / "out/", "-k", "8", *of_model)
    assert done.code == 0, done.err
