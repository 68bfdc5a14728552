"""Files are whole or absent, and damage is noticed."""

import contextlib
import dataclasses
import json
import math
import os
import re
import time
from typing import TypedDict
from unittest.mock import ANY

import numpy as np
import pytest

from jaxwhiten import io
from jaxwhiten.errors import InputError, ModelError, OutputError
from jaxwhiten.options import bounded

TENSORS = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(4, np.float32)}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "deep" / "x.safetensors"
    io.save_tensors(path, TENSORS, kind="moments", header={"note": "é"})
    return path


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "table.txt"
    io.write_text(path, "old")

    def half_write():
        with io.atomic_path(path) as temporary:
            temporary.write_text("ne")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        half_write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.txt"]


def test_the_bytes_are_on_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    path, calls = tmp_path / "table.txt", []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        calls.append(("fsync", os.fstat(handle).st_ino, os.fstat(handle).st_size))
        fsync(handle)

    def noted_replace(source, target):
        calls.append(("replace", os.stat(source).st_ino, os.stat(source).st_size))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    io.write_text(path, "whole")
    written = path.stat().st_ino, len("whole")
    assert calls == [("fsync", *written), ("replace", *written)]


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        io.write_json(tmp_path / "x.json", {"score": float("nan")})
    assert os.listdir(tmp_path) == []


@dataclasses.dataclass
class Inner:
    score: float
    note: str | None = None
    part: float = bounded(0.5, 0.0, 1.0)


class Facts(TypedDict):
    rows: int
    inner: dict[str, Inner]


def test_json_is_read_as_the_types_that_it_was_written_from():
    value: Facts = {"rows": 3, "inner": {"a": Inner(0.5), "b": Inner(math.nan, "odd")}}
    told = json.loads(json.dumps(io.to_json(value)))
    parts = {"a": {"score": 0.5, "part": 0.5}, "b": {"score": None, "note": "odd", "part": 0.5}}
    assert told == {"rows": 3, "inner": parts}
    found = io.from_json(Facts, told, "facts.json")
    assert found["inner"]["a"] == Inner(0.5)
    assert math.isnan(found["inner"]["b"].score)
    assert io.from_json(tuple[float | str, ...], [1, "x", 2.5], "x") == (1.0, "x", 2.5)
    assert io.from_json(Facts, told | {"more": 1}, "facts.json") == {"rows": 3, "inner": ANY}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"rows": "3", "inner": {}}', "rows: expected an integer, got '3'. Mend it."),
        (b'{"rows": 3, "inner": {"a": {"score": 1, "note": 2}}}', "inner: a: note: expected text, got 2. Mend it."),
        ("a pipe", "cannot be read (no such file). Mend it."),
        (b"\xff", "cannot be read ('utf-8' codec"),
        (b"[" * 100_000, "not readable as JSON (maximum recursion"),
        (b"9" * 5000, "not readable as JSON (Exceeds the limit"),
        (b'{"rows": 1}', "inner: missing. Mend it."),
        (b'{"rows": 1, "inner": {"a": {"score": 1, "part": 2}}}', "part: expected a number from 0 to 1, got 2"),
    ],
)
def test_files_of_json_are_refused_by_one_reader(tmp_path, content, message):
    file = tmp_path / "facts.json"
    if content == "a pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(f"{file}: ") + ".*" + re.escape(message)):
        io.read_json(file, Facts, "Mend it.", error=ModelError)


def test_a_file_is_hashed_once_for_its_identity(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("jaxwhiten.io.cache._SMALL", 1)  # the way of large files
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    first = io.sha256_once(file)
    assert first == io.sha256_file(file)
    assert not (tmp_path / "cache").exists()  # written just now: another write could leave the same times
    monkeypatch.setattr("jaxwhiten.io.cache._TICK", -(10**10))
    assert io.sha256_once(file) == first
    monkeypatch.setattr("jaxwhiten.io.cache.sha256_file", lambda path: "again")
    assert io.sha256_once(file) == first
    (cached,) = (tmp_path / "cache" / "hashes").iterdir()
    cached.write_text("damaged")
    assert io.sha256_once(file) == "again"
    cached.write_text(first)
    file.write_bytes(b"other")
    assert io.sha256_once(file) == "again"


def in_place(file, content):
    file.write_bytes(content)


def by_rename(file, content):
    other = file.with_name("other")
    other.write_bytes(content)
    os.replace(other, file)


@pytest.mark.parametrize("replace", [in_place, by_rename])
def test_a_file_of_equal_size_and_time_is_another_file(tmp_path, replace):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    about, before = file.stat(), io.Files.of([file])
    before.check()
    time.sleep(0.02)  # a tick of the file system's clock
    replace(file, b"two")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (about.st_size, about.st_mtime_ns)
    with pytest.raises(ModelError, match="weights: changed after the model was loaded: load the model again"):
        before.check()


DAMAGES = {
    "flipped": lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 4]) + file.read_bytes()[1:]),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-5]),
    "empty": lambda file: file.write_bytes(b""),
    "null": lambda file: file.write_text("null"),
    "an empty object": lambda file: file.write_text("{}"),
    "missing": lambda file: file.unlink(),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


def _entries(folder):
    """Three files of 1,000 bytes in rooms of a cache, used one after the other, and one that is none of a room."""
    rooms = {"embeddings/first.db": 1, "compiled/second/graph": 2, "xla/third": 3, "datasets/prepared": 0}
    for name, used in rooms.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(bytes(1000))
        for path in (folder / name, (folder / name).parent):
            os.utime(path, (used, used))
    return folder


@pytest.mark.parametrize(("most", "left"), [(1e5, 3), (9000, 3), (2500, 1), (500, 1), (0, 0)])
def test_a_cache_forgets_what_was_used_longest_ago(tmp_path, monkeypatch, most, left):
    """Folders take some bytes of their own; what was used last stays, unless nothing may."""
    cache = _entries(tmp_path / "cache")
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAXWHITEN_CACHE_GB", str(most / 1e9))
    size = io.trim_cache()
    names = ["embeddings/first.db", "compiled/second", "xla/third"]
    assert [name for name in names if (cache / name).exists()] == names[3 - left :]
    assert (cache / "datasets/prepared").exists()
    assert 1000 * left <= size <= 100_000 * left


def test_a_limit_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_GB", "much")
    with pytest.raises(InputError, match="JAXWHITEN_CACHE_GB='much'"):
        io.cache_limit()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["text", "checksums.json"])
def test_what_is_kept_is_read_whole_or_not_at_all(tmp_path, name, damage):
    def read(folder):
        return (folder / "text").read_text()

    folder = tmp_path / "entry"
    assert io.recall(folder, read) is None
    io.keep(folder, lambda folder: io.write_text(folder / "text", "It rains."))
    assert io.recall(folder, read) == "It rains."
    DAMAGES[damage](folder / name)
    with pytest.warns(UserWarning, match=r"entry: damaged \(.*\): recomputing"):
        assert io.recall(folder, read) is None
    assert io.recall(folder, read) is None  # there is none now, of which nobody needs to hear
    io.keep(folder, lambda folder: io.write_text(folder / "text", "It pours."))
    assert io.recall(folder, read) == "It pours."
    io.keep(folder, lambda folder: io.write_text(folder / "text", "It snows."))  # another process was first
    assert io.recall(folder, read) == "It pours."
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


@pytest.fixture
def closed(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("check", [io.check_file, io.check_folder])
def test_a_place_in_a_folder_that_cannot_be_entered(closed, unprivileged, check):
    with pytest.raises(OutputError, match=r"closed/new.npy: could not be written \(Permission denied\)"):
        check(closed / "new.npy")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0, 2, 9], None),
        ([], None),
        ([[0, 1], [2, 10]], "rows: 10, expected an integer from 0 to 9"),
        ([0.0, math.nan], "rows: nan, expected an integer from 0 to 9"),
    ],
)
def test_numbers_of_a_file_are_within_bounds(numbers, message):
    with pytest.raises(ValueError, match=re.escape(message)) if message else contextlib.nullcontext():
        io.within("rows", np.array(numbers), 0, 9)
