"""Every mistake is one line, with the exit code of its kind, and changes nothing; its key words say what to do."""

import sys

import pytest

from tests.commands.conftest import MODEL, contents, words_of

# Lines and words of their messages; a line without --model has @ for that of the shared folder.
USAGE = {
    "idnex {texts.txt}": "'index'",
    "--verson": "'--version'",
    "encode --outptu=x": "'--output'",
    "fit x --gama 1": "'--gamma'",
    "fit x --jsn": "'--json'",
    "fit x -q": "-q",
    "fit": "INPUT jaxwhiten fit --help",
    "encode {texts.txt}": "--output missing",
    "encode {texts.txt} -o": "-o argument",
    "search x -k two": "-k two",
    "search x -k 1.5": "-k 1.5",
    "score -- -a.csv --b": "--b",
    "--print-completion fish": "bash zsh",
    "serve m --port 70000": "--port 70000 65535",
    "serve m --timeout 0": "--timeout 0.0 above",
    "serve m --queue 0": "--queue 0",
    "serve m --writable": "--writable --index",
    "verify --texts mine.txt": "model",
}
WRONG = {
    # Names and values.
    "index {texts.txt} -o {new} --backend fais-flat": "'faiss-flat'",
    "index {texts.txt} -o {new} --rescore float15": "'float16'",
    "encode {texts.txt} -o {new}.nyp": "'.npy'",
    "encode {texts.txt} -o {new}.npy --format josnl": "'jsonl'",
    "embed {texts.txt} -o {new} --ray -1": "--ray -1",
    "embed {texts.txt} -o {new} --part-rows 0": "--part-rows 0",
    "export -o {new} --format sentence-transformer": "'sentence-transformers'",
    "train {pairs.tsv} -o {new} --objective mmr": "'mnr'",
    "train {apart.tsv} -o {new} --objective cosent --settings.scales 3 --model {model} --quiet": "'scale'",
    "train {pairs.tsv} -o {new} --dtype float23": "'float32'",
    "train {pairs.tsv} -o {new} --held-out 1.5": "--held-out 1.5 below",
    "train {pairs.tsv} -o {new} --learning-rate -1": "--learning-rate -1.0",
    # Settings out of bounds, found before anything is encoded.
    "fit {texts.txt} -o {new} --beta 2 @": "--beta 2.0",
    "fit {texts.txt} -o {new} --gamma nan @": "--gamma nan",
    "fit {texts.txt} -o {new} -k 33 @": "-k 33 32",
    "fit {texts.txt} -o {new} --bytes 0 @": "--bytes 0 32",
    "index {texts.txt} -o {new} --bytes 500 @": "--bytes 500 32",
    "encode {texts.txt} -o {new}.npy --block 0 @": "--block 0",
    "encode {texts.txt} -o {new}.npy --max-length 999 --model {model} --pooling mean": "--max-length 999",
    **{
        f"{line} -o {{new}} --max-length 2 --model {{model}} --pooling mean": "--max-length 2"
        for line in ("fit {texts.txt}", "embed {texts.txt}", "index {texts.txt}", "export --format onnx")
    },
    # Files and tables.
    "encode nowhere.txt -o {new}.npy": "nowhere.txt",
    "index {header.csv} --id id --column title --column nope -o {new}": "nope title",
    "encode {header.csv} --column titel -o {new}.npy": "'titel' id",
    "encode {header.csv} -o {new}.npy": "--column",
    "encode {few.txt} --column text -o {new}.npy": "--column --format",
    "index {twice.csv} --id key -o {new} --model absent": "'a' twice",
    "fit {latin.txt} -o {new} @": "latin.txt, 2: 0xe9",
    "fit {same.txt} -o {new} @": "400 identical",
    "fit {absent.npy} -o {new}": "absent.npy",
    "fit {foreign.png} {few.txt} -o {new}": "moments",
    "fit {flat.npy} -o {new}": "flat.npy [n, d]",
    "embed {texts.txt} {texts.txt} -o {new}": "texts.txt twice",
    "score {row.csv}": "row.csv row",
    "score {columns.csv}": "--column one, two, gold, more",
    "train {pairs.tsv} --column sentence1 --column anser -o {new}": "'anser'",
    "train {apart.tsv} --objective cosent --batch-size 8 --accumulate 8 --model {model} -o {new} --quiet": "16",
    # What excludes each other, or is missing.
    "fit {texts.txt}": "--moments -o",
    "fit {texts.txt} --moments {new} -k 3": "-o",
    "fit {x.npy} --moments {new} --bytes 4": "--bytes -o",
    "fit {x.npy} -o {new}/": "folder sentences",
    "fit {x.npy} --bytes 99 -o {new}.safetensors": "--bytes 99 16",
    "fit {texts.txt} --bytes 8 --untuned -o {new}.safetensors @": "-o folder",
    "apply {texts.txt} {x.npy} -o {new}.npy": "texts.txt whitening",
    "apply {c} {x.npy} -o {new}.npy -k 4": "code -k",
    "apply {w.safetensors} {foreign.npy} -o {new}.npy": "32 3",
    "index {few.txt} -o {new} --like {docs.db} --bytes 8": "--bytes docs.db",
    "index {few.txt} -o {new} --like {docs.db} --no-words": "--no-words docs.db",
    "index {parts} -o {new} --model {model}": "vectors --model",
    "index {parts} -o {new} --keep x": "--keep",
    "score {pairs.tsv} --model {small} -k 4": "whitening",
    "export --format faiss --whitening {c} -o {new}": "'spectrum' whitening",
    "export --format faiss -o {new} @": "--whitening",
    "export --format onnx --bytes 8 -o {new}": "--bytes pgvector",
    "export --format pgvector --from {idx.db} -o {new}": "--from --into",
    "export --whitening {w.safetensors} --model {model} --pooling cls -o {new}": "--pooling mean 'cls'",
    "inspect {foreign.jsonl}": "foreign.jsonl",
    "inspect {foreign}": "config.json",
    # Other models than those of the files.
    "export --model {auto} --whitening {w.safetensors} -o {new}": "--pooling mean",
    "search {idx.db} word --model {other}": "rebuild",
    "add {idx.db} {few.txt} --model {other}": "space --model",
    # Indexes that live.
    "search absent query": "absent index",
    "search {foreign}": "foreign index",
    "search {idx.db} -k 0 x": "-k 0",
    "search {idx.db} x --where yaer>2": "yaer",
    "add {new} {few.txt}": "index",
    "add {docs.db} {docs.csv} --id text --column key --keep key": "--keep metadata",
    "add {docs.db} {docs.csv} --id kye": "'kye' key",
    "add {docs.db} {few.txt}": "few.txt --id",
    "remove {docs.db}": "--file",
    "remove {docs.db} doc-1 --file {few.txt}": "--file",
    "remove {docs.db} {few.txt}": "few.txt --file",
    "remove {docs.db} doc-1 doc-9 --strict": "'doc-9'",
    # Outputs of the wrong kind.
    "fit {texts.txt} -o {new}.npy": ".safetensors .npy",
    "distill -o {new}.bin": ".bin /",
}


@pytest.fixture(scope="module")
def before(home):
    return contents(home)


@pytest.mark.parametrize(("line", "words"), [*USAGE.items(), *WRONG.items()], ids=[*USAGE, *WRONG])
def test_a_mistake_is_one_line_and_changes_nothing(run, home, before, line, words):
    done = run(*words_of(line.replace("@", MODEL), home))
    errors = [text for text in done.err.splitlines() if not text.startswith(("note: ", "warning: "))]
    assert (done.code, done.out, len(errors)) == (2, "", 1), done.err
    assert errors[0].startswith("error: ")
    assert [word for word in words.split() if word not in errors[0]] == [], errors[0]
    assert contents(home) == before


@pytest.mark.parametrize("query", ["", "caf\udce9"])
def test_a_query_has_a_text(run, home, query):
    done = run("search", home / "idx.db", query)
    assert (done.code, done.err.count("\n")) == (2, 1)


@pytest.fixture
def forbidden(tmp_path):
    (tmp_path / "texts.txt").write_text("one\n")
    (tmp_path / "texts.txt").chmod(0)
    return tmp_path / "texts.txt"


def test_no_permission(run, forbidden, unprivileged):
    done = run("fit", forbidden, "-o", "/never-written.safetensors")
    assert (done.code, "permissions" in done.err) == (2, True)


def test_an_error_of_the_system_has_another_code(run, home):
    done = run(*words_of(f"fit {{texts.txt}} {MODEL} -o {{few.txt}}/out", home))
    assert (done.code, "another location" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("line", "module", "extra"),
    [
        ("export --format onnx -o {new}", "onnx", "cpu"),
        ("export --format faiss -o {new}", "faiss", "cpu"),
        ("embed absent.txt -o {new}", "pyarrow", "data"),
        ("index absent.txt -o {new}", "faiss", "cpu"),
        ("train absent.tsv -o {new}", "grain", "train"),
        ("train absent.tsv -o {new}", "matplotlib", "train"),
        ("embed absent.txt -o {new} --ray 2", "ray", "ray"),
    ],
)
def test_a_missing_extra_is_named_before_texts_and_model_are_read(run, tmp_path, monkeypatch, line, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    done = run(*words_of(line, tmp_path), "--model", "absent")
    assert (done.code, f"[{extra}]" in done.err, done.err.count("\n")) == (2, True, 1)
