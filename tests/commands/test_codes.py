"""From a corpus to a search of codes: fit --bytes, index --bytes and --rescore."""

import json

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import load_code
from jaxwhiten.search import load_index
from tests.sentences import generated

MODEL = ("--pooling", "mean", "--max-length", 32)


@pytest.fixture
def texts(tmp_path):
    found = generated(400, seed=4)
    (tmp_path / "texts.txt").write_text("\n".join(found))
    return found


def test_an_index_of_codes(run, tiny_model, texts, tmp_path):
    words = ("--model", tiny_model, *MODEL, "--bytes", 8, "--rescore", "float16", "-o", tmp_path / "index")
    done = run("index", tmp_path / "texts.txt", *words)
    assert (done.code, "400 texts, spectrum codes of 8 bytes, faiss-flat" in done.out) == (0, True), done.err
    index = load_index(tmp_path / "index")
    assert (index.codes.bytes, index.rescore) == (8, "float16")
    assert "γ=1: the encoder is not fine-tuned" in done.err
    done = run("search", tmp_path / "index", texts[7], "-k", 3)
    assert texts[7] in done.out


@pytest.mark.parametrize("told", ["--tuned", ""])
def test_shards_and_texts_are_whitened_alike(run, tiny_model, texts, tmp_path, told):
    """Shards record whether their encoder is fine-tuned."""
    pytest.importorskip("pyarrow")
    model = ("--model", tiny_model, *MODEL)
    assert run("embed", tmp_path / "texts.txt", "-o", tmp_path / "emb", *model, *told.split()).code == 0
    for words in (("emb",), ("texts.txt", *model))[: 1 if told else 2]:
        done = run("index", tmp_path / words[0], *words[1:], "--bytes", 4, "--overwrite", "-o", tmp_path / "index")
        assert done.code == 0, done.err
        assert getattr(load_index(tmp_path / "index").fitted, "gamma", None) == (None if told else 1.0)
        assert ("γ=1: the encoder is not fine-tuned" in done.err) == (not told)


def test_shards_of_codes_become_an_index_of_them(run, tiny_model, texts, tmp_path):
    pytest.importorskip("pyarrow")
    small = ("--model", tmp_path / "small", "-o")
    assert (
        run("fit", tmp_path / "texts.txt", "--model", tiny_model, *MODEL, "--bytes", 8, *small[2:], small[1]).code == 0
    )
    assert run("embed", tmp_path / "texts.txt", *small, tmp_path / "emb").code == 0
    assert run("index", tmp_path / "texts.txt", *small, tmp_path / "of-texts").code == 0
    done = run("index", tmp_path / "emb", "-o", tmp_path / "of-codes")
    assert (done.code, "400 texts, spectrum codes of 8 bytes" in done.out) == (0, True), done
    of_texts, of_codes = (load_index(tmp_path / name).search(texts[7], k=3) for name in ("of-texts", "of-codes"))
    assert [hit.id for hit in of_codes] == [f"texts.txt:{hit.id + 1}" for hit in of_texts]
    assert [hit.score for hit in of_codes] == pytest.approx([hit.score for hit in of_texts], abs=1e-6)
    assert run("index", tmp_path / "emb", "--bytes", 4, "-o", tmp_path / "other").code == 2


def test_vectors_are_coded_by_a_code_in_a_file(run, corpus, tiny_model, texts, tmp_path):
    model, code_file = ("--model", tiny_model, *MODEL), tmp_path / "code.safetensors"
    assert run("fit", corpus, *model, "--bytes", 8, "--tuned", "-o", code_file).code == 0
    code, encoder = load_code(code_file), Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    vectors = encoder.encode(texts)
    expected = code.encode(vectors)
    np.save(tmp_path / "v.npy", vectors)
    done = run("apply", code_file, tmp_path / "v.npy", "-o", tmp_path / "a.npy")
    assert (done.code, "400 codes of 8 bytes" in done.out) == (0, True)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)
    assert load_code(tmp_path / "a.npy.code.safetensors").affine.hash() == code.affine.hash()
    told = json.loads(run("inspect", code_file, "--json").out)
    assert (told["name"], told["bytes"], told["rows"], told["pooling"]) == ("spectrum", 8, 600, "mean")
