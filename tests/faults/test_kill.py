"""A few kills of every operation; JAXWHITEN_FAULT_KILLS=50 makes more."""

import os

import numpy as np
import pytest

from jaxwhiten.commands import cli
from jaxwhiten.search import load_index
from tests.conftest import own_cache
from tests.faults import kill, kill_embed, kill_saving, kill_training, kill_upgrade

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
def test_killed_while_an_upgrade_fills(tiny_model, tmp_path):
    kill_upgrade.begin(tmp_path, tiny_model)
    found = kill_upgrade.killed(tmp_path, tiny_model, KILLS)
    print(f"texts embedded after each kill: {found}")
    cli.main(["upgrade", str(tmp_path / "index"), "--fill", str(len(kill_upgrade.TEXTS))])
    filled, new = load_index(tmp_path / "index"), kill_upgrade.encoders(tiny_model)[1]
    assert (filled.ids.tolist(), list(filled.documents)) == (kill_upgrade.IDS, kill_upgrade.TEXTS)
    unbroken = new.encode(kill_upgrade.TEXTS)
    scores = filled.search(unbroken[:50], 5)[0]
    unit = unbroken / np.linalg.norm(unbroken, axis=1, keepdims=True)
    np.testing.assert_allclose(scores, -np.sort(-unit[:50] @ unit.T, axis=1)[:, :5], atol=1e-5)


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
