"""From a corpus to a search of codes: files of codes with their code beside them, shards, and indexes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening
from jaxwhiten.codes import load_code
from jaxwhiten.codes.files import open_vectors
from jaxwhiten.commands import cli, encode
from jaxwhiten.encoding import store
from jaxwhiten.search import build_index, load_index
from tests.conftest import slow_but
from tests.sentences import generated

MODEL = ("--pooling", "mean", "--max-length", 32)


@pytest.fixture(scope="module")
def coded(corpus, tiny_model, tmp_path_factory):
    """A folder of the tiny model with a code of 8 bytes."""
    folder = tmp_path_factory.mktemp("coded") / "coded"
    words = ["fit", corpus, "--model", tiny_model, *MODEL, "-k", 20, "--bytes", 8, "-o", f"{folder}/"]
    assert cli.main([str(word) for word in words]) == 0
    return folder


@pytest.fixture
def codes(run, corpus, coded, tmp_path):
    done = run("encode", corpus, "--model", coded, "-o", tmp_path / "codes.npy")
    assert done.code == 0, done.err
    assert "600 codes of 8 bytes" in done.out
    return tmp_path / "codes.npy"


def test_encode_writes_a_byte_per_byte_with_the_code_beside_it(codes, coded, corpus):
    wanted = Encoder.from_pretrained(coded).encode(corpus.read_text().split("\n")[:-1])
    found = open_vectors(str(codes))
    assert np.load(codes).dtype == np.uint8
    assert codes.stat().st_size == 128 + 600 * 8
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(found.decode(), wanted.decode())


def test_fit_and_apply_read_codes_as_what_they_stand_for(run, codes, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "_BLOCK_BYTES", 4000)
    done = run("fit", codes, "-o", tmp_path / "w.safetensors", "--moments", tmp_path / "m.safetensors", "-k", 5)
    assert done.code == 0, done.err
    decoded = open_vectors(str(codes)).decode()
    moments = Moments().update(decoded)
    np.testing.assert_array_equal(Moments.load(tmp_path / "m.safetensors").M2, moments.M2)
    done = run("apply", tmp_path / "w.safetensors", codes, "-o", tmp_path / "out.npy")
    assert done.code == 0, done.err
    wanted = Whitening.load(tmp_path / "w.safetensors").transform(decoded)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), wanted, atol=1e-6)


def test_an_index_of_a_file_of_codes_is_searched_and_shown(run, codes, corpus, coded, tmp_path):
    found = open_vectors(str(codes))
    build_index(found, "jax", codes=found.code).save(tmp_path / "idx")
    text = corpus.read_text().split("\n")[7]
    done = run("search", tmp_path / "idx", text, "-k", 1)  # the code says which encoder its queries take
    assert (done.code, done.out.split()[1]) == (0, "7"), done.err
    done = run("inspect", tmp_path / "idx", "--json")
    told = json.loads(done.out)
    assert (told["backend"], told["size"], told["ids"], told["texts"]) == ("jax", 600, "numbers", False)
    assert (told["space"]["model"], told["codes"]["bytes"]) == (str(coded), 8)
    shown = run("inspect", tmp_path / "idx").out
    assert "\n  codes       name spectrum, bytes 8, axes 20" in shown
    assert "pooling auto, max_length 32" in shown


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "first_last_avg"])
def test_fit_and_index_encode_once(run, corpus, tiny_model, pooling, tmp_path, monkeypatch):
    together, encoded = store.together, []

    def counted(views, texts, *options):
        encoded.extend(texts)
        return together(views, texts, *options)

    monkeypatch.setattr(store, "together", counted)
    model = ["--model", tiny_model, "--pooling", pooling, "--max-length", 32]
    fit = ["fit", corpus, *model, "--bytes", 8, "-o", tmp_path / "small/"]
    assert run(*fit).code == 0
    assert len(encoded) == 600
    done = run("index", corpus, "--model", tmp_path / "small", "-o", tmp_path / "idx")
    assert done.code == 0, done.err
    assert len(encoded) == 600  # none anew
    shutil.rmtree(tmp_path / "cache")
    assert run(*fit, "--no-cache", "--overwrite").code == 0
    assert not (tmp_path / "cache" / "embeddings").exists()


def test_a_code_of_other_bytes_is_refused(run, codes, tmp_path):
    bytes_ = np.load(codes)
    np.save(codes, bytes_[::-1])
    done = run("fit", codes, "-o", tmp_path / "w.safetensors")
    assert done.code == 2
    assert "codes.npy.code.safetensors does not match these codes" in done.err
    load_code(Path(f"{codes}.code.safetensors")).save(tmp_path / "mine.npy.code.safetensors", {"codes_sha256": None})
    np.save(tmp_path / "mine.npy", bytes_)  # codes that a user saves, with code.save
    assert run("fit", tmp_path / "mine.npy", "-o", tmp_path / "w.safetensors").code == 0


@pytest.fixture
def texts(tmp_path):
    found = generated(400, seed=4)
    (tmp_path / "texts.txt").write_text("\n".join(found))
    return found


@pytest.mark.parametrize("told", slow_but(["--tuned", ""], ""))
def test_shards_and_texts_are_whitened_alike(run, tiny_model, texts, tmp_path, told):
    """Shards record whether their encoder is fine-tuned."""
    pytest.importorskip("pyarrow")
    model = ("--model", tiny_model, *MODEL)
    assert run("embed", tmp_path / "texts.txt", "-o", tmp_path / "emb", *model, *told.split()).code == 0
    more = ("--rescore", "float16", "--overwrite", "-o", tmp_path / "index")
    for words in (("emb",), ("texts.txt", *model))[: 1 if told else 2]:
        done = run("index", tmp_path / words[0], *words[1:], "--bytes", 4, *more)
        assert done.code == 0, done.err
        index = load_index(tmp_path / "index")
        assert (index.codes.bytes, index.rescore) == (4, "float16")
        assert getattr(index.fitted, "gamma", None) == (None if told else 1.0)
        assert ("γ=1: the encoder is not fine-tuned" in done.err) == (not told)


@pytest.mark.slow
def test_shards_of_codes_become_an_index_of_them(run, coded, texts, tmp_path):
    pytest.importorskip("pyarrow")
    assert run("embed", tmp_path / "texts.txt", "--model", coded, "-o", tmp_path / "emb").code == 0
    assert run("index", tmp_path / "texts.txt", "--model", coded, "-o", tmp_path / "of-texts").code == 0
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
