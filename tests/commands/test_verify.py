"""`jaxwhiten verify`: whole things pass, damaged ones fail with their reason and a non-zero exit code."""

import json
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from jaxwhiten.encoding import verification
from jaxwhiten.search import build_index
from tests.sentences import TEXTS


@pytest.mark.devices
@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_a_healthy_machine(run, command):
    done = run(command)
    assert done.code == 0, done.out
    for name in ("jaxwhiten", "packages", "devices", "matrix product", "faiss", "cache folder"):
        assert f"\nok   {name} " in f"\n{done.out}"
    assert "8 of cpu" in done.out
    assert done.err == ""


def test_what_is_whole_passes(run, tiny_model, whitening_file, tmp_path, monkeypatch):
    monkeypatch.setattr(verification, "CHECKS", {"texts apart": verification.CHECKS["texts apart"]})
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    build_index(encoder.encode(TEXTS), "jax", encoding=encoder.encoding()).save(tmp_path / "index")
    moments = whitening_file.parent / "moments.safetensors"
    np.save(tmp_path / "vectors.npy", np.eye(3, dtype=np.float32))
    done = run("verify", tiny_model, whitening_file, moments, tmp_path / "index", tmp_path / "vectors.npy", "--json")
    report = json.loads(done.out)
    assert (done.code, report["ok"]) == (0, True)
    details = {check["name"]: check["detail"] for check in report["checks"]}
    assert "bert, 2 layers of 32" in details[str(tiny_model)]
    assert "whitening of 600 rows, 32 dimensions" in details[str(whitening_file)]
    assert "moments of 600 rows" in details[str(moments)]
    assert "3 vectors, 3 dimensions" in details[str(tmp_path / "vectors.npy")]
    assert f"{tiny_model}: texts apart" in details
    assert f"index of {len(TEXTS)} vectors" in details[str(tmp_path / "index")]


def test_real_data(run, real_data):
    done = run("verify", real_data)
    assert done.code == 0, done.err
    assert "STS-B 5,749/1,500/1,379" in done.out


def damaged(tiny_model, whitening_file, folder, what):
    """Something broken, and what must be said of it."""
    path = folder / what
    if what == "absent":
        return path, "no such folder"
    if what == "absent.npy":
        return path, "no such file"
    if what.endswith(".npy"):
        np.save(path, np.array([[1, 2], [1, 2], [1, np.nan if what == "nan.npy" else 2]], np.float32))
        return path, "Row 2 of the vectors contains NaN" if what == "nan.npy" else "all 3 vectors are identical"
    if what == "whitening":
        raw = bytearray(whitening_file.read_bytes())
        raw[-20] ^= 0xFF
        path.write_bytes(raw)
        return path, "checksum does not match"
    if what == "empty moments":
        Moments().save(path)
        return path, "moments of no rows"
    if what == "empty folder":
        path.mkdir()
        return path, "no model, index or data in it"
    if what == "data":
        (path / "downstream" / "STS" / "STSBenchmark").mkdir(parents=True)
        return path, "no such file"
    shutil.copytree(tiny_model, path)
    if what == "tokenizer":
        (path / "tokenizer.json").write_text("{}")
        return path, "tokenizer"
    (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:5000])
    return path, "not a readable safetensors file"


@pytest.mark.parametrize(
    "what",
    [
        *("absent", "absent.npy", "nan.npy", "equal.npy", "whitening", "empty moments", "empty folder", "data"),
        *("tokenizer", "weights"),
    ],
)
def test_what_is_damaged_fails_with_its_reason(run, tiny_model, whitening_file, tmp_path, what):
    path, reason = damaged(tiny_model, whitening_file, tmp_path, what)
    done = run("verify", path)
    assert done.code == 1
    assert f"FAIL {path}" in done.out
    assert done.err.startswith("error: 1 of 1 checks failed")
    assert done.err.count("\n") == 1
    assert reason in done.err


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_fails(run, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "file" / "cache"))
    done = run("verify", "--json")
    assert done.code == 1
    wrong = [check["name"] for check in json.loads(done.out)["checks"] if check["ok"] is False]
    assert wrong == ["cache folder"]
