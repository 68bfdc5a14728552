"""A few kills of every operation; `python -m tests.faults.kill 50` makes more."""

import os

import pytest

from tests.faults import kill, kill_saving

KILLS = int(os.environ.get("JAXWHITEN_FAULT_KILLS", "3"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation", kill.OPERATIONS)
def test_killed_and_resumed(operation, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    assert kill.killed(operation, tmp_path, tiny_model, KILLS)[0] == KILLS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation", kill_saving.OPERATIONS)
def test_killed_while_saving(operation, tiny_model, tmp_path):
    if operation == "int8":
        pytest.importorskip("nncf", reason="needs the extra `openvino`")
    found, left = kill_saving.killed(operation, tmp_path, tiny_model, KILLS)
    print(f"{operation}: the two folders found {found} times, {left} temporary folders left by the kills")
    assert sum(found) == KILLS
