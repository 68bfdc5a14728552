"""Progress in a file: a line now and then, without control characters."""

import time

from jaxwhiten import terminal
from jaxwhiten.terminal import bars
from jaxwhiten.terminal.bars import Progress


def test_lines_in_a_file(capsys, monkeypatch):
    with Progress(total=10, desc="encode", unit="text") as bar:
        bar.update(5)
    assert capsys.readouterr().err == ""  # nothing before 5 seconds
    monkeypatch.setattr(terminal, "SECONDS", 0.05)
    with Progress(total=10, desc="encode", unit="text"):
        time.sleep(0.2)  # the first step compiles
    assert capsys.readouterr().err == "encode: 0 of 10 texts\n"
    monkeypatch.setattr(terminal, "SECONDS", 1e6)
    monkeypatch.setattr(bars, "_LINES", {**bars._LINES, "mininterval": 0, "delay": 0})
    with Progress(total=10, desc="encode", unit="text") as bar:
        bar.update(5)
        bar.update(3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("encode: 8 of 10 texts, ")
    assert lines[-1].endswith(" left")
    with Progress(total=10, desc="encode", unit="text") as bar:
        bar.update(5)
        capsys.readouterr()
        terminal.note("few rows")  # and not the line before again
    assert capsys.readouterr().err == "note: few rows\n"
    with terminal.quiet():
        terminal.note("few rows")
    with Progress(show=False, total=10) as bar:
        bar.update(5)
    assert capsys.readouterr().err == ""


def test_a_silence_is_broken(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "SECONDS", 0.05)
    with terminal.watched():
        time.sleep(0.1)  # nothing has begun
        assert capsys.readouterr().err == ""
        terminal.begin("checking pooling")
        time.sleep(0.25)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) > 1
        assert set(lines) <= {"checking pooling: 0 s", "checking pooling: 1 s"}
        with terminal.quiet():
            time.sleep(0.15)
        assert len(capsys.readouterr().err.splitlines()) <= 1
    time.sleep(0.1)
    assert capsys.readouterr().err == ""
