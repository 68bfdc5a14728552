"""The whole run on a toy problem: files, best parameters, stopping, resuming bit for bit, divergence."""

import json
import os
import re
import signal
import threading

import filelock
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxwhiten.errors import NonFiniteError, OutputError
from jaxwhiten.training.log import Log, plot_run, read_metrics
from jaxwhiten.training.loop import run_plan
from jaxwhiten.training.plan import Plan
from jaxwhiten.training.step import schedule
from tests.training import toy

STEPS = 24


def run(folder, *, loss_fn=toy.loss_fn, evaluate=toy.evaluate, steps=STEPS, **options):
    return run_plan(
        folder,
        Plan(toy.params(), loss_fn, lambda params: params),
        toy.batches(),
        toy.how(steps, **{"evaluate_every": 8, "log_every": 5, "progress": False, **options}),
        {"toy": 1},
        evaluate=evaluate,
        best="toy dev" if evaluate else None,
    )


def steps_of(folder):
    return {row["step"]: row["loss"] for row in read_metrics(folder) if "loss" in row}


class Stopping:
    """An evaluation during which the run is asked to stop, as a scheduler asks."""

    def __init__(self, number, call=2):
        self.number, self.call, self.calls = number, call, 0

    def __call__(self, params):
        self.calls += 1
        if self.calls == self.call:
            os.kill(os.getpid(), self.number)
        return toy.evaluate(params)


def test_files_scores_and_the_best_parameters(tmp_path):
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    seen, scores = [], [0.0, 10.0, 30.0, 20.0]

    def evaluate(params):
        seen.append(jax.tree.map(np.array, params))
        return {"toy dev": scores[len(seen) - 1]}

    trained = run(tmp_path, evaluate=evaluate)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    losses = steps_of(tmp_path)
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < 0.5 * losses[1]
    found = {row["step"]: row["toy dev"] for row in read_metrics(tmp_path) if "toy dev" in row}
    assert found == dict(zip([0, 8, 16, 24], scores, strict=True))
    assert trained.step == 16
    for kept, best, last in zip(*map(jax.tree.leaves, (trained.params, seen[2], seen[3])), strict=True):
        np.testing.assert_array_equal(kept, best)
        assert not np.array_equal(kept, last)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tensorboard").iterdir())
    lines = (tmp_path / "metrics.jsonl").read_text()
    assert run(tmp_path, loss_fn=lambda *_: pytest.fail("trained again")).step == 16
    assert (tmp_path / "metrics.jsonl").read_text() == lines


def test_another_training_in_the_folder(tmp_path):
    with filelock.FileLock(tmp_path / ".lock"), pytest.raises(OutputError, match="locked by another writer"):
        run(tmp_path)
    assert os.listdir(tmp_path) == [".lock"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "end"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_stopped_and_resumed_is_bit_equal(tmp_path, capsys, number, end):
    """Lines that a killed run wrote after its checkpoint are dropped."""
    whole, parts = run(tmp_path / "whole"), tmp_path / "parts"
    with pytest.raises(end) as stopped:
        run(parts, evaluate=Stopping(number))
    assert getattr(stopped.value, "code", 143) == 143
    assert "checkpoint is saved; rerun to resume" in capsys.readouterr().err
    step = max(int(path.name) for path in (parts / "checkpoints").iterdir())
    assert 8 <= step < STEPS
    assert len(steps_of(parts)) == step
    with (parts / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step + 1, "loss": 123.0}) + "\n" + '{"step": 9, "lo')
    resumed = run(parts)
    lines = [[row for row in read_metrics(folder) if "loss" in row] for folder in (parts, tmp_path / "whole")]
    assert [[row["step"] for row in rows] for rows in lines] == [[*range(1, STEPS + 1)]] * 2
    assert steps_of(parts) == steps_of(tmp_path / "whole")
    for a, b in zip(jax.tree.leaves(resumed.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_saving_without_evaluating(tmp_path):
    assert run(tmp_path, evaluate=None, save_every=10, keep=2).step == STEPS
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"20", "24"}


@jax.custom_vjp
def overflowing(x):
    return x


overflowing.defvjp(lambda x: (x, x), lambda x, g: (g * jnp.where(jnp.abs(x) > 0.2, jnp.inf, 1.0),))


def of_loss(params, batch, key):
    loss, metrics = toy.loss_fn(params, batch, key)
    return jnp.where(jnp.abs(params["bias"][0]) > 0.2, jnp.nan, loss), metrics


def of_gradient(params, batch, key):
    return toy.loss_fn({**params, "bias": overflowing(params["bias"])}, batch, key)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first step that begins with a large bias."""
    biases = []

    def scored(params):
        biases.append(abs(float(params["bias"][0])))
        return toy.evaluate(params)

    run(tmp_path_factory.mktemp("good"), evaluate=scored, evaluate_every=1)
    return 1 + next(step for step, bias in enumerate(biases) if bias > 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("save_every", [3, 0])
@pytest.mark.parametrize(("loss_fn", "said"), [(of_loss, "loss is nan"), (of_gradient, "gradient inf")])
def test_the_first_step_that_is_not_finite_ends_the_run_before_anything_is_saved(
    tmp_path, first, loss_fn, said, save_every
):
    saved = (first - 1) // save_every * save_every if save_every else 0
    rate = float(schedule(toy.how(STEPS))(first - 1))
    kept = re.escape(f"last good checkpoint is {tmp_path}/checkpoints/{saved}.") if saved else "No checkpoint"
    with pytest.raises(NonFiniteError, match=rf"{said}.* at step {first}, with a learning rate of {rate:g}\. .*{kept}"):
        run(tmp_path, loss_fn=loss_fn, evaluate=None, save_every=save_every, log_every=10 * STEPS)
    assert list(steps_of(tmp_path)) == list(range(1, first))
    assert all(np.isfinite(list(steps_of(tmp_path).values())))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [str(saved)] * bool(saved)


def test_a_checkpoint_in_progress_is_finished_when_the_run_fails(tmp_path, monkeypatch):
    release = threading.Event()
    serialize = ocp.StandardCheckpointHandler.async_save

    async def slow(self, *args, **kwargs):
        futures = await serialize(self, *args, **kwargs)
        return [*futures, Later(release)]

    class Later:
        def __init__(self, event):
            self.event = event

        def result(self, timeout=None):
            assert self.event.wait(60)

    def failing(params):
        if failing.calls:
            threading.Timer(0.5, release.set).start()
            raise RuntimeError("the evaluation fails")
        failing.calls += 1
        return toy.evaluate(params)

    failing.calls = 0
    monkeypatch.setattr(ocp.StandardCheckpointHandler, "async_save", slow)
    with pytest.raises(RuntimeError, match="the evaluation fails"):
        run(tmp_path, evaluate=failing, save_every=7)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["7"], "finished, nothing half-written"


def test_rates_and_bar(tmp_path, capsys):
    log = Log(tmp_path, 10, start=0, per_step=32, unit="sentences", progress=True)
    log.steps([(1, {"loss": 2.0}), (2, {"loss": 1.5})])
    log.scores(2, {"dev": 81.234})
    log.close()
    shown = capsys.readouterr().err
    assert "loss 1.5000" in shown
    assert "sentences/s" in shown
    assert "step 2: dev 81.23" in shown
    rows = read_metrics(tmp_path)
    assert rows[0]["sentences_per_second"] > 0
    assert plot_run(tmp_path).is_file()
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 1, "dev": 81.0}\n')
    assert plot_run(tmp_path) is None
