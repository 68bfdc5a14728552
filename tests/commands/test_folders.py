"""Folders: what users keep in them stays, and what leaves a folder is not read."""

import os
import shutil

import pytest

from jaxwhiten import Encoder, io
from jaxwhiten.errors import ModelError
from jaxwhiten.models import load_model, resolve_folder


@pytest.fixture
def of_model(tiny_model):
    return ["--model", tiny_model, "--pooling", "mean", "--max-length", 32]


def test_an_own_folder_is_replaced_and_a_users_file_in_it_kept(run, corpus, of_model, tmp_path):
    out = tmp_path / "all-MiniLM-v1.5"
    for k in (4, 8):
        assert run("fit", corpus, "-o", out, "-k", k, "--overwrite", *of_model).code == 0
        assert Encoder.from_pretrained(out).dimension == k
    before = sorted(path.name for path in out.rglob("*"))
    (out / "notes.txt").write_text("mine")
    done = run("fit", corpus, "-o", out, "-k", 4, "--overwrite", *of_model)
    assert "contains notes.txt, which jaxwhiten did not write" in done.err
    assert (out / "notes.txt").read_text() == "mine"
    assert Encoder.from_pretrained(out).dimension == 8
    assert sorted(path.name for path in out.rglob("*")) == sorted([*before, "notes.txt"])


@pytest.fixture
def hostile(tiny_model, tmp_path):
    """A model with a secret beside it."""
    (tmp_path / "secret").write_text("password")
    return shutil.copytree(tiny_model, tmp_path / "model")


@pytest.mark.parametrize("name", ["merges.txt", "openvino", "1_Pooling/config.json"])
def test_a_link_that_leaves_the_model(hostile, name, tmp_path):
    encoder = Encoder.from_pretrained(hostile, pooling="mean", max_length=32)
    (hostile / name).parent.mkdir(exist_ok=True)
    (hostile / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match=f"{name}: .*leaves"):
        Encoder.from_pretrained(hostile)
    if "/" not in name and name != "openvino":
        with pytest.raises(ModelError, match="leaves the folder"):
            encoder.save(tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_links_of_the_hubs_cache_are_followed(tiny_model, tmp_path):
    snapshot, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in tiny_model.iterdir():
        shutil.copy(file, blobs / f"{file.name}-blob")
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}-blob")
    load_model(snapshot)
    (blobs / "merges.txt-blob").symlink_to("/etc/hostname")
    (snapshot / "merges.txt").symlink_to("../../blobs/merges.txt-blob")
    with pytest.raises(ModelError, match=r"merges\.txt: .*leaves"):
        resolve_folder(snapshot)


@pytest.mark.filterwarnings("default")
def test_a_cache_that_cannot_be_written(run, corpus, of_model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "file"))
    done = run("index", corpus, "-o", tmp_path / "index", *of_model)
    assert done.code == 0, done.err
    said = [line for line in done.err.splitlines() if line.startswith("warning: Continuing without a cache")]
    assert len(said) == 1
    assert "--no-cache" in said[0]
    assert "JAXWHITEN_CACHE_DIR" in said[0]
    assert run("search", tmp_path / "index", "a man").code == 0


def test_a_second_writer_does_not_remove_the_folder_of_the_first(tmp_path):
    folder = tmp_path / "place" / "out"
    folder.parent.mkdir()
    with io.whole_folder(folder) as first:
        (first / "a").write_text("first")
        with io.whole_folder(folder) as second:
            (second / "a").write_text("second")
        assert (folder / "a").read_text() == "second"
    assert (folder / "a").read_text() == "first"
    assert os.listdir(folder.parent) == ["out"]
