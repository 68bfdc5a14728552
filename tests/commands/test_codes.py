"""From a corpus to a search of codes: fit --bytes, index --bytes, --codes and --rescore."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import load_code
from jaxwhiten.search import load_index
from tests.commands.conftest import generated

MODEL = ("--pooling", "mean", "--max-length", 32)


@pytest.fixture
def texts(tmp_path):
    found = generated(400, seed=4)
    (tmp_path / "texts.txt").write_text("\n".join(found))
    return found


def test_one_folder_holds_whitening_and_code(run, corpus, tiny_model, texts, tmp_path):
    small = tmp_path / "small"
    done = run("fit", corpus, "--model", tiny_model, *MODEL, "-k", 20, "--bytes", 8, "-o", f"{small}/")
    assert done.code == 0, done.err
    assert "code of 8 bytes behind the whitening of 32 to 20 dimensions" in done.err
    encoder = Encoder.from_pretrained(small)
    assert encoder.encode(texts[:3]).shape == (3, 8)
    assert "600 rows of corpus.txt" in (small / "README.md").read_text(encoding="utf-8")
    done = run("index", tmp_path / "texts.txt", "--model", small, "-o", tmp_path / "index")
    assert done.code == 0, done.err
    assert "spectrum codes of 8 bytes" in done.out
    index = load_index(tmp_path / "index")
    assert index.codes == {"name": "spectrum", "bytes": 8}
    done = run("search", tmp_path / "index", texts[7], "-k", 3)
    assert done.code == 0, done.err
    assert texts[7] in done.out.splitlines()[0]


def test_vectors_give_the_code_alone(run, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    done = run("fit", tmp_path / "v.npy", "--bytes", 4, "-o", tmp_path / "code.safetensors")
    assert done.code == 0, done.err
    code = load_code(tmp_path / "code.safetensors")
    assert code.encode(vectors).shape == (400, 4)
    assert code.gamma_ == 0.5
    assert code.provenance["corpus"] == "v.npy"
    assert "trained" not in done.err
    narrow = np.arange(1, 17, dtype=np.float32) ** -2  # the spectrum of an encoder that was not tuned
    many = np.random.default_rng(0).standard_normal((10_000, 16)).astype(np.float32) * narrow
    np.save(tmp_path / "many.npy", many)
    done = run("fit", tmp_path / "many.npy", "--bytes", 4, "-o", tmp_path / "code.safetensors")
    assert "'pq' is ahead of it here" in done.err
    assert "jaxwhiten index --bytes 4" in done.err
    done = run("fit", tmp_path / "v.npy", "--bytes", 99, "-o", tmp_path / "code.safetensors")
    assert (done.code, "at most 16" in done.err) == (2, True)
    done = run("fit", tmp_path / "v.npy", "--bytes", 4, "--moments", tmp_path / "m.safetensors")
    assert (done.code, "--bytes belong" in done.err) == (2, True)


@pytest.mark.parametrize("rescore", [(), ("--rescore", "int8")])
@pytest.mark.parametrize("codes", [("--bytes", 8), ("--codes", "ubinary"), ("--codes", "int8", "--whiten")])
def test_an_index_of_codes(run, tiny_model, texts, tmp_path, codes, rescore):
    words = ("--model", tiny_model, *MODEL, *codes, *rescore, "-o", tmp_path / "index")
    done = run("index", tmp_path / "texts.txt", *words)
    assert done.code == 0, done.err
    index = load_index(tmp_path / "index")
    assert index.codes["bytes"] == {8: 8, "ubinary": 4, "int8": 32}[codes[1]]
    assert index.rescore == (rescore[1] if rescore else None)
    assert ("note: codes='spectrum' of 8 bytes" in done.err) == (codes[0] == "--bytes")
    done = run("search", tmp_path / "index", texts[7], "-k", 3)
    assert texts[7] in done.out


def test_a_typo_is_answered(run, tiny_model, texts, tmp_path):
    words = ("--model", tiny_model, *MODEL, "-o", tmp_path / "index")
    done = run("index", tmp_path / "texts.txt", *words, "--codes", "spectrm")
    assert (done.code, "Did you mean 'spectrum'" in done.err) == (2, True)
    done = run("index", tmp_path / "texts.txt", *words, "--rescore", "int9")
    assert (done.code, "Did you mean 'int8'" in done.err) == (2, True)


def test_texts_are_added_to_an_index(run, tiny_model, texts, tmp_path):
    words = ("--model", tiny_model, *MODEL, "--bytes", 8, "-o", tmp_path / "index")
    assert run("index", tmp_path / "texts.txt", *words).code == 0
    (tmp_path / "new.txt").write_text("something new\n\nand newer\n")
    done = run("index", tmp_path / "new.txt", "--add", "-o", tmp_path / "index")
    assert done.code == 0, done.err
    assert "2 texts added (1 blank ones left out" in done.out
    assert ", 402 in all" in done.out
    index = load_index(tmp_path / "index")
    assert list(index.documents) == [*texts, "something new", "and newer"]
    assert "401\tand newer" in run("search", tmp_path / "index", "and newer", "-k", 1).out
    done = run("index", tmp_path / "new.txt", "--add", "--bytes", 8, "-o", tmp_path / "index")
    assert (done.code, "omit --bytes" in done.err) == (2, True)
    done = run("index", tmp_path / "new.txt", "--add", "-o", tmp_path / "nowhere")
    assert (done.code, "expected an index folder" in done.err) == (2, True)
