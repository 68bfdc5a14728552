"""Checkpoints: bits come back, last and best are kept, and what is full, damaged or changed is refused."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.errors import FormatError, JaxwhitenError, MismatchError
from jaxwhiten.training import checkpoint
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.step import create_state, data_mesh
from tests.training import toy

pytestmark = pytest.mark.devices

RECIPE = {"model": "tiny", "learning_rate": 2e-5, "data": {"name": "nli", "sources": ("a",)}}


@pytest.fixture
def state():
    return create_state(toy.params(), toy.how(), data_mesh(toy.how()))


def at(state, step):
    """The state at a step, with parameters and an optimizer state that tell it from others."""

    def moved(tree, by):
        return jax.tree.map(lambda x: x + (step if jnp.issubdtype(x.dtype, jnp.integer) else by), tree)

    return state._replace(
        step=state.step + step, params=moved(state.params, step / 7), opt_state=moved(state.opt_state, step / 3)
    )


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def save_all(folder, state, scores, **options):
    checkpoints = Checkpoints(folder, RECIPE, best="dev", **options)
    for step, score in scores.items():
        checkpoints.save(at(state, step), {"next_index": step}, None if score is None else {"dev": score})
    checkpoints.wait()
    return checkpoints


def test_last_and_best_are_kept(tmp_path, state):
    checkpoints = save_all(tmp_path, state, {1: 10.0, 2: 30.0, 3: 20.0, 4: None, 5: float("nan")})
    assert (checkpoints.latest, checkpoints.best) == (5, 2)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"2", "5"}
    restored, position = checkpoints.restore(state, checkpoints.best)
    assert position == {"next_index": 2}
    assert same(restored, at(state, 2))
    assert not same(restored, state)
    assert restored.params["kernel"].sharding == state.params["kernel"].sharding
    checkpoints.close()
    unscored = Checkpoints(tmp_path / "unscored", RECIPE)
    assert unscored.best is None
    for step in (1, 2):
        unscored.save(at(state, step), {})
    unscored.wait()
    assert unscored.best == 2
    unscored.close()


def test_a_changed_recipe_is_refused_and_nothing_touched(tmp_path, state):
    save_all(tmp_path, state, {1: 1.0}).close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    changed = {**RECIPE, "learning_rate": 3e-5, "data": {"name": "nli", "sources": ("b",)}}
    with pytest.raises(MismatchError, match=r"data\.sources was .*; learning_rate was 2e-05, now 3e-05"):
        Checkpoints(tmp_path, changed, best="dev")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(FormatError, match="recipe"):
        Checkpoints(tmp_path, RECIPE, best="dev")
    Checkpoints(tmp_path / "new", RECIPE).close()
    Checkpoints(tmp_path / "new", {"model": "other"}).close()  # nothing is trained yet


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_a_damaged_checkpoint_is_refused_and_the_older_one_intact(tmp_path, state, damage):
    save_all(tmp_path, state, {1: 9.0, 2: 1.0}).close()
    files = [path for path in (tmp_path / "checkpoints" / "2" / "state").rglob("*") if path.is_file()]
    for path in files:
        path.unlink() if damage == "remove" else path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    checkpoints = Checkpoints(tmp_path, RECIPE, best="dev")
    with pytest.raises(FormatError, match=r"not a readable checkpoint.*Remove that folder to resume from step 1"):
        checkpoints.restore(state)
    assert same(checkpoints.restore(state, 1)[0], at(state, 1))
    checkpoints.close()


def test_flipped_bits_that_orbax_reads_are_noticed(tmp_path, monkeypatch):
    """Orbax restores an array with a flipped bit without an error: its files carry no checksum of the values."""
    big = {"kernel": jax.random.normal(jax.random.key(0), (200, 200))}
    state = create_state(big, toy.how(), data_mesh(toy.how()))
    save_all(tmp_path, state, {1: 9.0}).close()
    file = max((path for path in tmp_path.rglob("d/*") if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    checkpoints = Checkpoints(tmp_path, RECIPE, best="dev")
    with pytest.raises(FormatError, match="checksums do not match"):
        checkpoints.restore(state)
    monkeypatch.setattr(checkpoint, "_checksums", lambda _: checkpoints._manager.restore(1)["rest"]["checksums"])
    assert not same(checkpoints.restore(state)[0].params, at(state, 1).params)
    checkpoints.close()


def fill_the_disk(folder):
    """Run in a process of its own: the second checkpoint meets a limit on the size of files, as a full disk is met."""
    big = {"kernel": jax.random.normal(jax.random.key(0), (400, 400))}
    state = create_state(big, toy.how(), data_mesh(toy.how()))
    checkpoints = Checkpoints(Path(folder), RECIPE, best="dev")
    checkpoints.save(at(state, 1), {"next_index": 1}, {"dev": 1.0})
    checkpoints.wait()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        checkpoints.save(at(state, 2), {"next_index": 2}, {"dev": 2.0})
        checkpoints.wait()
    except JaxwhitenError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(f"REFUSED {error}")
    again = Checkpoints(Path(folder), RECIPE, best="dev")
    print(f"LATEST {again.latest} INTACT {same(again.restore(state)[0], at(state, 1))}")


@pytest.mark.slow
def test_a_full_disk_is_refused_and_the_older_checkpoint_intact(tmp_path):
    code = f"from tests.training import test_checkpoint; test_checkpoint.fill_the_disk({str(tmp_path)!r})"
    environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert "REFUSED" in done.stdout, done.stderr[-2000:]
    assert "could not be written (" in done.stdout
    assert "left intact: steps 1" in done.stdout
    assert "LATEST 1 INTACT True" in done.stdout
