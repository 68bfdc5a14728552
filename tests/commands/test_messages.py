"""What reaches a terminal: no passwords and no active characters."""

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from jaxwhiten import Encoder, build_index
from jaxwhiten.commands import export
from jaxwhiten.commands.arguments import EncoderOptions, one_line
from jaxwhiten.commands.texts import stdin_lines
from jaxwhiten.export import databases
from tests.conftest import slow_but

ASCII = "from jaxwhiten.commands import cli; cli.main = lambda: print('\u0663 \U0001f600', 'é'); cli.program()"
PLACES = (
    "postgresql://me:hunter2@host:1/db",
    "postgresql://me:hun@ter2@host/db",
    "postgresql://host/db?user=me&password=hunter2",
    "host=host password=hunter2 user=me",
    "host=host password = 'hunter2 x' user=me",
    "http://host:19530?token=hunter2",
)


@pytest.mark.parametrize("place", slow_but(PLACES, PLACES[1]))
def test_no_message_holds_a_password(run, monkeypatch, tmp_path, place):
    """Neither ours nor that of a client that repeats parts of the address."""
    assert "ter2" not in one_line(f"error: {place}: refused")
    assert "host" in one_line(place)
    index = build_index(np.eye(1, 4, dtype=np.float32), "jax", documents=["a"])

    def refused(folder, place, *_, **__):
        raise RuntimeError(f'failed to resolve host "{place.partition("@")[2]}", in {place}')

    monkeypatch.setattr("jaxwhiten.search.load_index", lambda path, **how: index)
    monkeypatch.setattr(export, "check_installed", lambda *_: None)
    monkeypatch.setattr(EncoderOptions, "load", lambda _: None)
    monkeypatch.setattr(databases, "save_database", lambda *_, **__: {"columns": 1, "quantizer": "bits"})
    monkeypatch.setattr(Encoder, "from_pretrained", lambda folder: SimpleNamespace(encode_document=None))
    words = ("export", "--format", "pgvector", "-o", tmp_path / "out", "--from", "idx", "--into", place)
    monkeypatch.setattr(databases, "fill", refused)
    done = run(*words)
    assert done.code == 1
    assert "the database could not be filled (failed to resolve" in done.err.splitlines()[-1]
    assert "ter2" not in done.err
    assert "hun" not in done.err
    monkeypatch.setattr(databases, "fill", lambda *_, **__: databases.Changes(1, 0, 0))
    done = run(*words)
    assert "1 text added, 0 changed, 0 removed, 0 already there" in done.out
    assert "hun" not in done.err


def test_errors_do_not_drive_the_terminal(run, tiny_model, tmp_path):
    done = run("encode", tmp_path / "a\x1b[31m\x9b\u202eb.txt", "--model", tiny_model, "-o", tmp_path / "x.npy")
    assert done.code == 2
    assert r"a\x1b[31m\x9b\u202eb.txt" in done.err
    assert done.err.count("\n") == 1


def test_an_ascii_terminal_is_warned_once_of_escapes():
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", ASCII], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "\\u0663 \\ud83d\\ude00 \\u00e9\n"
    assert done.stderr.count("stdout is ascii") == 1


def test_a_file_whose_name_is_not_utf8_is_named(run, tiny_model, tmp_path):
    (tmp_path / "in").mkdir()
    try:
        (tmp_path / "in" / "caf\udce9.txt").write_text("a man\n")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    words = ("--model", tiny_model, "--pooling", "mean", "-o")
    done = run("embed", tmp_path / "in", *words, tmp_path / "out")
    assert done.code == 2
    assert r"caf\udce9.txt" in done.err
    assert run("encode", tmp_path / "in" / "caf\udce9.txt", *words, tmp_path / "x.npy").code == 0
    done = run("index", tmp_path / "in" / "caf\udce9.txt", *words, tmp_path / "caf\udce9")
    assert done.code == 2
    assert r"caf\udce9' is not valid UTF-8: rename the file" in done.err


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors")
@pytest.mark.parametrize(
    ("words", "closed", "message"),
    [
        ("--version", ">&-", "error: stdout is closed: redirect it to a file, or to /dev/null."),
        ("encode - -o x.npy", "<&-", "error: stdin is closed: specify the input, or redirect stdin"),
        ("--nonsense", "2>&-", ""),
    ],
)
def test_a_closed_stream_is_no_traceback(tmp_path, words, closed, message):
    command = f'"{sys.executable}" -m jaxwhiten.commands.cli {words} {closed}'
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == bool(message)


def test_stdin_is_utf8_whatever_the_locale_is(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("café\n\nrain".encode()), encoding="latin-1"))
    assert list(stdin_lines()) == ["café", "", "rain"]
