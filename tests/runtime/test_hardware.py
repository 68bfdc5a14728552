"""The cores and the memory of this process."""

import os

import pytest

from jaxwhiten.runtime import hardware


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_cores_are_those_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert hardware.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert hardware.cores() == len(allowed)


def test_cores_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert hardware.cores() == 7
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert hardware.cores() == 1
