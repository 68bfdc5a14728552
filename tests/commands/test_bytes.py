"""Files of codes: bytes with their code beside them, read as what they stand for, refused without it."""

from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening
from jaxwhiten.codes import load_code
from jaxwhiten.commands.vectors import open_vectors
from tests.commands.conftest import generated

MODEL = ("--pooling", "mean", "--max-length", 32)


@pytest.fixture(scope="module")
def coded(corpus, tiny_model, tmp_path_factory):
    """A folder of the tiny model with a code of 8 bytes."""
    from jaxwhiten.commands import cli

    folder = tmp_path_factory.mktemp("coded") / "coded"
    words = ["fit", corpus, "--model", tiny_model, *MODEL, "-k", 20, "--bytes", 8, "-o", f"{folder}/"]
    assert cli.main([str(word) for word in words]) == 0
    return folder


@pytest.fixture
def codes(run, corpus, coded, tmp_path):
    done = run("encode", corpus, "--model", coded, "-o", tmp_path / "codes.npy")
    assert done.code == 0, done.err
    assert "600 codes of 8 bytes" in done.err
    return tmp_path / "codes.npy"


def test_encode_writes_a_byte_per_byte_with_the_code_beside_it(codes, coded, corpus):
    wanted = Encoder.from_pretrained(coded).encode(corpus.read_text().split("\n")[:-1])
    found = open_vectors(str(codes))
    assert np.load(codes).dtype == np.uint8
    assert codes.stat().st_size == 128 + 600 * 8
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(found.decode(), wanted.decode())


def test_fit_and_apply_read_codes_as_what_they_stand_for(run, codes, tmp_path):
    done = run("fit", codes, "-o", tmp_path / "w.safetensors", "--moments", tmp_path / "m.safetensors", "-k", 5)
    assert done.code == 0, done.err
    decoded = open_vectors(str(codes)).decode()
    moments = Moments().update(decoded)
    np.testing.assert_array_equal(Moments.load(tmp_path / "m.safetensors").M2, moments.M2)
    done = run("apply", tmp_path / "w.safetensors", codes, "-o", tmp_path / "out.npy")
    assert done.code == 0, done.err
    wanted = Whitening.load(tmp_path / "w.safetensors").transform(decoded)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), wanted)


@pytest.mark.parametrize("command", ["fit", "apply"])
def test_bytes_without_their_code_are_refused(run, codes, whitening_file, command, tmp_path):
    Path(f"{codes}.code.safetensors").unlink()
    words = ["fit", codes] if command == "fit" else ["apply", whitening_file, codes]
    done = run(*words, "-o", tmp_path / ("w.safetensors" if command == "fit" else "out.npy"))
    assert done.code == 2
    assert "codes.npy: holds bytes, and codes.npy.code.safetensors with their code is not beside it" in done.err
    assert done.err.count("\n") == 1


def test_a_code_of_other_bytes_is_refused(run, codes, tmp_path):
    bytes_ = np.load(codes)
    np.save(codes, bytes_[::-1])
    done = run("fit", codes, "-o", tmp_path / "w.safetensors")
    assert done.code == 2
    assert "codes.npy.code.safetensors is the code of other bytes" in done.err
    load_code(Path(f"{codes}.code.safetensors")).save(tmp_path / "mine.npy.code.safetensors", {"codes_sha256": None})
    np.save(tmp_path / "mine.npy", bytes_)  # codes that a user saves, with code.save
    assert run("fit", tmp_path / "mine.npy", "-o", tmp_path / "w.safetensors").code == 0


def test_what_was_there_stays_when_writing_fails(run, codes, coded, tmp_path, monkeypatch):
    before = codes.read_bytes(), Path(f"{codes}.code.safetensors").read_bytes()
    (tmp_path / "more.txt").write_text("\n".join(generated(50, seed=9)))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jaxwhiten.io.sha256_file", full)
    done = run("encode", tmp_path / "more.txt", "--model", coded, "-o", codes)
    assert done.code != 0
    assert "No space left" in done.err
    assert (codes.read_bytes(), Path(f"{codes}.code.safetensors").read_bytes()) == before


def test_parquet_holds_bytes(run, corpus, coded, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    assert run("encode", corpus, "--model", coded, "-o", tmp_path / "codes.parquet").code == 0
    column = pq.read_table(tmp_path / "codes.parquet")["embedding"]
    assert "uint8" in str(column.type)
    assert load_code(tmp_path / "codes.parquet.code.safetensors").nbytes == 8
