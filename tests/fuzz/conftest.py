"""Every fuzz test runs with its memory and time watched: a reader that grows or hangs fails, whatever it returns."""

import faulthandler
import os
from pathlib import Path

import pytest

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MOST_GROWTH = 1 << 30


def _bytes_of(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    """Ten thousand files need not survive a power cut; tests/faults is about that."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def bounded_memory():
    """The peak of the process's memory may not rise by more than 1 GiB in one test."""
    try:
        _CLEAR.write_text("5")  # the peak is counted from here on
        before = _bytes_of("VmRSS")
    except OSError:  # not Linux
        yield
        return
    faulthandler.enable()
    yield
    assert _bytes_of("VmHWM") - before < MOST_GROWTH
