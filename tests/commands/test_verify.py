"""`jaxwhiten verify`: whole things pass, damaged ones fail with their reason and a non-zero exit code."""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxwhiten import Encoder
from jaxwhiten.commands import verify
from jaxwhiten.models import load_model
from tests.sentences import TEXTS, generated


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """Whitened vectors in 8 bytes, with a prompt in front of every text."""
    encoder = Encoder.from_module(
        load_model(tiny_model)[0], tiny_model, prompts={"query": "Q: "}, default_prompt_name="query"
    )
    return encoder.shrink(generated(700), bytes=8).save(tmp_path_factory.mktemp("whole") / "model")


def checks(done):
    """The checks of a report, by name."""
    report = json.loads(done.out)
    assert report["ok"] == (done.code == 0)
    return {check["name"]: check for check in report["checks"]}


@pytest.mark.devices
def test_a_healthy_machine(run):
    done = run("verify", "--json")
    assert [check["ok"] for check in checks(done).values()] == [True] * 6, done.out
    assert "8 of cpu" in checks(done)["devices"]["detail"]


@pytest.mark.slow
def test_what_is_whole_passes(run, folder, tiny_model, tmp_path):
    pytest.importorskip("sentence_transformers")
    Encoder.from_pretrained(tiny_model, pooling="mean").index(TEXTS).save(tmp_path / "index")
    (tmp_path / "mine.txt").write_text("One text.\nAnother one, of mine.\n")
    done = run("verify", folder, tiny_model, tmp_path / "index", "--texts", tmp_path / "mine.txt", "--json")
    found = checks(done)
    names = [folder, f"{folder}: vectors", f"{folder}: codes", tiny_model, f"{tiny_model}: vectors", tmp_path / "index"]
    assert [*found] == [*map(str, names)]
    assert all(check["ok"] for check in found.values()), done.out
    assert f"{len(verify._TEXTS) + 2} texts" in found[f"{folder}: vectors"]["detail"]


@pytest.mark.slow
def test_vectors_that_are_not_those_of_the_folder(run, folder, tmp_path, monkeypatch):
    """The whole folder decides, not what jaxwhiten reads of it."""
    pytest.importorskip("sentence_transformers")
    load = Encoder.from_pretrained
    monkeypatch.setattr(Encoder, "from_pretrained", lambda name, **options: load(folder, **options))
    changed = shutil.copytree(folder, tmp_path / "model")
    weights = load_file(changed / "model.safetensors")
    save_file({name: 1.1 * x for name, x in weights.items()}, changed / "model.safetensors", metadata={"format": "pt"})
    found = checks(run("verify", changed, "--json"))
    assert {name: check["ok"] for name, check in found.items()} == {str(changed): True, "vectors": False, "codes": True}
    assert "not those of sentence-transformers" in found["vectors"]["detail"]


@pytest.mark.slow
def test_codes_that_are_not_those_of_the_vectors(run, folder, monkeypatch):
    real = Encoder.encode

    def other(self, texts, **options):
        found = real(self, texts, **options)
        return 255 - np.asarray(found) if self.view.head.code else found

    monkeypatch.setattr(Encoder, "encode", other)
    assert checks(run("verify", folder, "--json"))["codes"]["ok"] is False


def damaged(tiny_model, folder, what):
    """Something broken, and what must be said of it."""
    path = folder / what
    if what == "absent":
        return path, "no such folder"
    if what == "index":
        Encoder.from_pretrained(tiny_model, pooling="mean").index(TEXTS).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return path, "cannot be read"
    shutil.copytree(tiny_model, path)
    (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:5000])
    return path, "not a readable safetensors file"


@pytest.mark.parametrize("what", ["absent", "index", "weights"])
def test_what_is_damaged_fails_with_its_reason(run, tiny_model, tmp_path, what):
    path, reason = damaged(tiny_model, tmp_path, what)
    done = run("verify", path)
    assert done.code == 1
    assert f"FAIL {path}" in done.out
    assert done.err == f"error: 1 of 1 checks failed: {path}.\n"
    assert reason in done.out


def test_the_cache_is_shown_and_cleared(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    entry = tmp_path / "cache" / "embeddings" / "vectors.db"
    entry.parent.mkdir(parents=True)
    with entry.open("wb") as file:
        file.truncate(1_500_000_000)  # of which nothing takes room
    assert re.search(r": 1\.[5-9]\d GB of at most 2 GB$", checks(run("verify", "--json"))["cache folder"]["detail"])
    run("verify", "--clear-cache", "--json")
    assert not entry.exists()
