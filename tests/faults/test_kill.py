"""A few kills of every operation; JAXWHITEN_FAULT_KILLS=50 makes more."""

import os

import pytest

from tests.conftest import own_cache
from tests.faults import kill, kill_embed, kill_saving, kill_training

KILLS = int(os.environ.get("JAXWHITEN_FAULT_KILLS", "2"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation", kill.OPERATIONS)
def test_killed_and_resumed(operation, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    left = kill.killed(operation, tmp_path, tiny_model, KILLS)
    print(f"{operation}: {left} temporary files left by the kills")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_training_killed_and_resumed(tiny_model, tmp_path):
    assert kill_training.killed(tmp_path, tiny_model, KILLS)[0] == KILLS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_killed_while_saving(tiny_model, tmp_path):
    found, left = kill_saving.killed(tmp_path, tiny_model, KILLS)
    print(f"the two folders found {found} times, {left} temporary folders left by the kills")
    assert sum(found) == KILLS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("runner", kill_embed.RUNNERS)
def test_killed_while_a_corpus_is_embedded(runner, tiny_model, tmp_path):
    pytest.importorskip("pyarrow")
    if runner == "ray":
        pytest.importorskip("ray")
    programs, workers, _ = kill_embed.killed(tmp_path, tiny_model, runner, KILLS)
    assert programs + workers == KILLS
    assert (workers > 0) == (runner == "ray")
