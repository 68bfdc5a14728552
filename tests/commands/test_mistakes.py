"""The ordinary mistakes: each is told in one line that says what to do, with the exit code of its kind."""

import shutil
import sys

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder, normalize
from jaxwhiten.commands import cli
from jaxwhiten.errors import InputError
from jaxwhiten.head import Normalize
from jaxwhiten.search import build_index
from tests.sentences import generated
from tests.tiny import write_model


@pytest.fixture(scope="module")
def places(tiny_model, tmp_path_factory):
    """Files that things are wrong with, and models, by their names in the table."""
    folder = tmp_path_factory.mktemp("places")
    texts = generated(400)
    files = {
        "texts.txt": "\n".join(texts),
        "header.csv": "id,title,body\n1,a,b\n",
        "rows.jsonl": '{"text": "one"}\n{"txt": "two"}\n',
        "same.txt": "one sentence\n" * 400,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "latin.txt").write_bytes("one\ncaf\xe9\n".encode("latin-1"))
    (folder / "file").touch()
    Encoder.from_pretrained(tiny_model, pooling="mean").then(Normalize()).save(folder / "auto")
    write_model(folder / "other", seed=5)
    found = {path.stem: path for path in folder.iterdir()}
    model = ["--model", str(tiny_model), "--pooling", "mean"]
    for words in (
        ["fit", found["texts"], *model, "-k", 8, "-o", folder / "mean.safetensors"],
        ["index", found["texts"], *model, "-o", folder / "idx", "--no-cache"],
    ):
        assert cli.main(list(map(str, words))) == 0
    return {**found, "tiny": tiny_model, "mean": folder / "mean.safetensors", "idx": folder / "idx", "absent": "absent"}


FIT = "fit {texts} --model {tiny}"
MISTAKES = {
    "a wrong path": ("encode nowhere.txt -o {out}.npy", 2, "nowhere.txt: no such file"),
    "a wrong column": ("encode {header} --column titel -o {out}.npy", 2, "no column 'titel'; the columns are id"),
    "a missing key": ("index {rows} --model {tiny} -o {out}", 2, "rows.jsonl, line 2: no key 'text'"),
    "not UTF-8": ("fit {latin} --model {tiny} -o {out}", 2, "line 2: not UTF-8"),
    "another model": ("search {idx} word --model {other}", 2, "rebuild the index"),
    "fitted with mean, used with auto": (
        "encode {texts} --model {auto} --whitening {mean} -o {out}.npy",
        2,
        "with --model {tiny} and --pooling mean",
    ),
    "a file for a folder": (f"{FIT} --pooling mean -o {{file}}/out", 1, "choose another location"),
    "a word for a number": (f"{FIT} -k abc -o {{out}}", 2, "Argument -k/--dimension: invalid int value: 'abc'"),
    "one sentence again and again": (
        "fit {same} --model {tiny} --pooling mean -o {out}",
        2,
        "the 400 vectors are identical up to rounding",
    ),
    "added by another model": (
        "index {texts} --add --model {other} -o {idx}",
        2,
        "The vectors are not in the space of the index: expected --model",
    ),
    "a mistyped command": ("idnex {texts}", 2, "Unknown command 'idnex'. Did you mean 'index'"),
}


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_one_line_that_says_what_to_do(run, places, tmp_path, words, code, message):
    names = {**places, "out": tmp_path / "out"}
    done = run(*(word.format(**names) for word in words.split()))
    assert done.code == code, done.err
    assert message.format(**names) in done.err
    (error,) = (line for line in done.err.splitlines() if not line.startswith("note: texts from "))
    assert error.startswith("error: ")
    assert done.out == ""
    assert not list(tmp_path.glob("*out*"))


@pytest.fixture
def forbidden(tmp_path):
    place = tmp_path / "texts.txt"
    place.write_text("one\ntwo\n")
    place.chmod(0)
    return place


def test_no_permission(run, forbidden, unprivileged):
    done = run("fit", forbidden, "-o", "/never-written.safetensors")
    assert done.code == 2
    assert done.err == f"error: {forbidden}: cannot be read (Permission denied): check its permissions.\n"


@pytest.mark.filterwarnings("default")
def test_the_same_moments_twice(run, places, tmp_path):
    moments = tmp_path / "m.safetensors"
    run("fit", places["texts"], "--model", places["tiny"], "--pooling", "mean", "--moments", moments)
    shutil.copy(moments, tmp_path / "copy.safetensors")
    done = run("fit", moments, tmp_path / "copy.safetensors", "--moments", tmp_path / "both.safetensors")
    assert done.code == 0
    assert f"warning: {tmp_path}/copy.safetensors: contains the same moments as {moments}" in done.err


def test_blank_lines(run, places, tmp_path):
    (tmp_path / "texts.txt").write_text("one\n\ntwo\n  \n")
    model = ("--model", places["tiny"], "--pooling", "mean")
    done = run("encode", tmp_path / "texts.txt", *model, "-o", tmp_path / "v.npy")
    assert done.out.endswith("4 32-dimensional vectors\n")
    assert "note: 2 blank texts; encode keeps them, index skips them\n" in done.err
    done = run("index", tmp_path / "texts.txt", *model, "-o", tmp_path / "idx")
    assert (
        "2 texts (2 blank texts skipped; `encode` keeps them: to align the two, remove them from the file)" in done.out
    )


def test_a_platform_that_is_not_there(places, monkeypatch):
    def devices():
        raise AssertionError

    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", "0")  # what was kept would be read without JAX
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(InputError, match="no device of JAX_PLATFORMS=cuda here: unset it"):
        Encoder.from_pretrained(places["tiny"], pooling="mean")


def test_what_sentence_transformers_users_type(places):
    encoder = Encoder.from_pretrained(places["tiny"], pooling="mean")
    found = encoder.encode(["one"], show_progress_bar=False, convert_to_numpy=True, convert_to_tensor=False)
    np.testing.assert_array_equal(found, encoder.encode(["one"]))
    for wrong in ({"convert_to_tensor": True}, {"convert_to_numpy": False}):
        with pytest.raises(InputError, match=r"call torch\.from_numpy"):
            encoder.encode_query(["one"], **wrong)
    with pytest.raises(InputError, match="Expected a list, one item per sentence, got NoneType"):
        encoder.encode(None)


@pytest.mark.parametrize("scale", [1e20, 1e-24])
@pytest.mark.parametrize("backend", ["jax", "faiss-flat"])
def test_vectors_that_float32_cannot_square(backend, scale):
    if backend != "jax":
        pytest.importorskip("faiss")
    x = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    index = build_index(x, backend)
    with pytest.raises(InputError, match=r"Row 0 of the query vectors has norm .*jaxwhiten.normalize"):
        index.search(x * np.float32(scale), 1)
    with pytest.raises(InputError, match=r"Row 0 of the document vectors has norm"):
        build_index(x * np.float32(scale), backend)
    _, ids = index.search(normalize(x * np.float32(scale)), 1)
    assert ids[:, 0].tolist() == list(range(60))


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        ("export --format onnx -o {out}", "onnx", "export"),
        ("export --format faiss -o {out}", "faiss", "cpu"),
        ("embed absent.txt -o {out}", "pyarrow", "data"),
        ("index absent.txt -o {out}", "faiss", "cpu"),
        ("train absent.tsv -o {out}", "grain", "train"),
        ("train absent.tsv -o {out}", "matplotlib", "train"),
        ("embed absent.txt -o {out} --runner ray", "ray", "ray"),
    ],
)
def test_a_missing_extra_is_said_before_texts_and_model_are_read(run, tmp_path, monkeypatch, words, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    words = words.format(out=tmp_path / "out").split()
    done = run(*words, "--model", "absent")
    assert done.code == 2
    assert f"[{extra}]" in done.err
    assert done.err.count("\n") == 1


def test_a_model_that_cannot_be_that_of_an_index_is_named(run, tiny_model, corpus, tmp_path):
    of_model = ["--model", tiny_model, "--pooling", "mean"]
    assert run("index", corpus, "-o", tmp_path / "idx", *of_model, "--max-length", 64).code == 0
    short = write_model(tmp_path / "short", max_positions=32)
    done = run("search", tmp_path / "idx", "hello", "--model", short)
    assert done.code == 2
    assert done.err.startswith(f"error: {short}: is not the model of these vectors")
    assert done.err.endswith("reads 3 to 32 tokens): specify theirs.\n")
