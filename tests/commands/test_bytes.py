"""Files of codes: bytes with their code beside them, read as what they stand for, refused without it."""

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
from jaxwhiten.search import build_index

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
