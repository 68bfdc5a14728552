"""A few kills of every operation; `python -m tests.faults.kill 50` makes more."""

import os

import pytest

from tests.faults import kill

KILLS = int(os.environ.get("JAXWHITEN_FAULT_KILLS", "3"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation", kill.OPERATIONS)
def test_killed_and_resumed(operation, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    assert kill.killed(operation, tmp_path, tiny_model, KILLS)[0] == KILLS
