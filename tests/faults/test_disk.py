"""Full and read-only disks, unreadable input, Ctrl-C: one line, an exit code, the old output intact, no litter."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder, io
from jaxwhiten.encoding.store import EmbeddingStore
from jaxwhiten.errors import OutputError
from jaxwhiten.runners import Parts, Source, embed_files
from jaxwhiten.search import load_index
from tests.commands.conftest import contents
from tests.conftest import slow_but
from tests.faults.conftest import earlier
from tests.sentences import generated

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = ["encode.npy", "encode.parquet", "encode.jsonl", "apply.npy", "fit", "moments", "index", "export"]
BACKENDS = ["index.faiss-ivf", "index.jax", "index.add"]
_FULL = re.compile(
    r"error: (.*): could not be written \((No space left on device|the disk took only a part of it)\);"
    r" existing files are intact\. Free some space, or (choose another location|set TMPDIR to another folder)\."
)


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.npy"
    np.save(path, np.random.default_rng(0).normal(size=(6000, 32)).astype(np.float32))
    wide = np.random.default_rng(1).normal(size=(2600, 256)).astype(np.float32)
    np.save(tmp_path / "wide.npy", wide)
    return path


def words(what, output, corpus, tiny_model, whitening_file, vectors):
    """The command that writes `output`, and the path it is given."""
    of_model = ["--model", tiny_model, "--pooling", "mean", "--max-length", 32]
    what, _, kind = what.partition(".")
    how = [*of_model, "--backend", kind or "faiss-flat"]
    how += ["--bytes", 8] if kind == "faiss-ivf" else []
    if kind == "add":
        return ["add", output, corpus, "--no-cache"]
    wide = vectors.with_name("wide.npy")
    return {
        "encode": ["encode", corpus, "-o", output, "--overwrite", *of_model],
        "apply": ["apply", whitening_file, vectors, "-o", output, "--overwrite"],
        "fit": ["fit", wide, "-o", output, "--overwrite"],
        "moments": ["fit", wide, "--moments", output, "--overwrite"],
        "index": ["index", corpus, "-o", output, "--no-cache", "--overwrite", *how],
        "export": ["export", "--format", "sentence-transformers", "-o", output, *of_model],
    }[what]


def fill(disk, leave):
    free = shutil.disk_usage(disk).free
    (disk / "filler").write_bytes(b"\0" * (free - leave))


def one_line(done, code):
    assert done.code == code, done
    errors = [line for line in done.err.splitlines() if not line.startswith(("note: ", "warning: "))]
    assert len(errors) == 1, done.err
    assert errors[0].startswith("error: ")
    return errors[0]


@pytest.mark.parametrize("what", slow_but([*OUTPUTS, *BACKENDS], "encode.npy", "fit", "index", "index.add"))
def test_a_full_disk(run, what, disk, corpus, tiny_model, whitening_file, vectors):
    index = what.startswith("index")
    output = disk / ("docs.db" if index else "folder" if what == "export" else what)
    command = words(what, output, corpus, tiny_model, whitening_file, vectors)
    if index:
        encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
        encoder.index(generated(20)).save(output)
    elif what != "export":
        earlier(output, {"fit": "whitening", "moments": "moments"}.get(what, ""))
    fill(disk, 24 << 10)
    before = contents(disk)
    said = one_line(run(*command), 1)
    if what == "index.add":
        wanted = "could not be written (No space left on device); nothing was changed. Free some space."
        assert said == f"error: {output}: {wanted}"
    else:
        assert _FULL.fullmatch(said)[1] == str(output)
    assert contents(disk) == before
    if index:
        assert load_index(output).size == 20


@pytest.mark.parametrize("what", slow_but(["encode.npy", "fit", "index", "export"], "index"))
def test_a_read_only_disk(run, what, disk, corpus, tiny_model, whitening_file, vectors):
    output = disk / what
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    said = one_line(run(*words(what, output, corpus, tiny_model, whitening_file, vectors)), 1)
    assert "Read-only file system" in said
    assert str(disk) in said


def test_a_full_folder_for_temporary_files(run, disk, tiny_model, corpus, tmp_path, monkeypatch):
    """Memory-mapped vectors of a corpus, and what a pipe sends; a write to a map would end the process."""
    of_model = ["--model", tiny_model, "--pooling", "mean", "--max-length", 32]
    assert run("embed", corpus, "-o", tmp_path / "parts", *of_model).code == 0
    rows = "text\tid\n" + "".join(f"{text}\t{text}\n" for text in generated(900))
    fill(disk, 24 << 10)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(rows.encode())))
    of_pipe = ["encode", "-", "--format", "tsv", "--column", "text", "-o", tmp_path / "x.npy", *of_model]
    for command in (["index", tmp_path / "parts", "-o", tmp_path / "idx"], of_pipe):
        assert _FULL.fullmatch(one_line(run(*command), 1)).groups()[::2] == (str(disk), "set TMPDIR to another folder")


def test_a_full_cache(run, disk, corpus, tiny_model, tmp_path, monkeypatch):
    """What the store has written stays, and is read even without room; the rest is encoded when there is some."""
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    texts = generated(600)
    store = EmbeddingStore(disk / "store")
    before = store.encode(encoder, texts[:50])
    fill(disk, 40 << 10)
    with pytest.raises(OutputError, match="No space left"):
        store.encode(encoder, texts)
    np.testing.assert_array_equal(store.encode(encoder, texts[:50]), before)
    (disk / "filler").unlink()
    np.testing.assert_allclose(store.encode(encoder, texts), encoder.encode(texts), atol=1e-5)
    assert len(list((disk / "store").iterdir())) == 1


def test_unreadable_input(run, tmp_path, tiny_model):
    place, output = Path("/proc/self/mem"), tmp_path / "out.npy"
    if not place.exists():
        pytest.skip("needs a file that cannot be read, such as Linux has")
    before = earlier(output)
    words = ["encode", place, "-o", output, "--overwrite", "--model", tiny_model, "--pooling", "mean"]
    assert str(place) in one_line(run(*words), 2)
    assert output.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_stdout_on_a_full_disk(tiny_model, corpus):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        words = f"-m jaxwhiten.commands.cli encode {corpus} -o - --model {tiny_model} --pooling mean".split()
        done = subprocess.run([sys.executable, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
    assert _FULL.fullmatch(error).groups()[:2] == ("the output", "No space left on device")


def test_what_killed_processes_left_is_cleared_after_a_day(tmp_path):
    folder = tmp_path / "place"
    folder.mkdir()
    old, new = folder / ".a.tmp", folder / ".b.tmp"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    io.remove_stale(folder)
    assert [path.name for path in folder.iterdir()] == [".b.tmp"]


def test_a_corpus_that_fills_the_disk_goes_on_when_there_is_room(disk, tiny_model, tmp_path):
    pytest.importorskip("pyarrow", reason="the extra data")
    (tmp_path / "a.txt").write_text("\n".join(generated(400)))
    sources, how = [Source(str(tmp_path / "a.txt"))], {"part_rows": 50, "show_progress": False}
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    embed_files(sources, tmp_path / "whole", encoder, **how)
    fill(disk, 120 << 10)
    with pytest.raises(OutputError, match="No space left"):
        embed_files(sources, disk / "parts", encoder, **how)
    assert 0 < len(list((disk / "parts").glob("part-*.json"))) < 8
    (disk / "filler").unlink()
    embed_files(sources, disk / "parts", encoder, **how)
    assert not list((disk / "parts").glob(".*.tmp"))
    (ids, vectors), (found, others) = Parts(tmp_path / "whole").all(), Parts(disk / "parts").all()
    assert found == ids
    np.testing.assert_array_equal(others, vectors)
