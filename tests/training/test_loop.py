"""The whole run on a toy problem: files, best parameters, stopping, resuming bit for bit, divergence."""

import json
import os
import signal

import filelock
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.errors import NonFiniteError, OutputError
from jaxwhiten.training.log import Log, plot_run, read_metrics
from jaxwhiten.training.loop import RunOptions, train
from jaxwhiten.training.plan import Plan
from tests.training import toy

STEPS = 24


def run(folder, *, loss_fn=toy.loss_fn, evaluate=toy.evaluate, steps=STEPS, **options):
    return train(
        folder,
        Plan(toy.params(), loss_fn, lambda params: params),
        toy.batches(),
        toy.how(steps),
        {"toy": 1},
        evaluate=evaluate,
        best="toy dev" if evaluate else None,
        options=RunOptions(**{"evaluate_every": 8, "log_every": 5, "progress": False, **options}),
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


def test_files_and_scores(tmp_path):
    trained = run(tmp_path)
    assert trained.finished
    losses = steps_of(tmp_path)
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < 0.5 * losses[1]
    scores = {row["step"]: row["toy dev"] for row in read_metrics(tmp_path) if "toy dev" in row}
    assert list(scores) == [0, 8, 16, 24]
    best = max(list(scores)[1:], key=scores.get)
    assert trained.step == best
    assert toy.evaluate(trained.params)["toy dev"] == pytest.approx(scores[best], abs=1e-4)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tensorboard").iterdir())


def test_another_training_in_the_folder(tmp_path):
    with filelock.FileLock(tmp_path / ".lock"), pytest.raises(OutputError, match="another writer is at work"):
        run(tmp_path)
    assert os.listdir(tmp_path) == [".lock"]


def test_the_best_parameters_come_back_though_later_ones_are_worse(tmp_path):
    scores, seen = iter([0.0, 10.0, 30.0, 20.0]), []

    def evaluate(params):
        seen.append(jax.tree.map(np.array, params))
        return {"toy dev": next(scores)}

    trained = run(tmp_path, evaluate=evaluate)
    assert trained.finished
    assert trained.step == 16
    for kept, best, last in zip(*map(jax.tree.leaves, (trained.params, seen[2], seen[3])), strict=True):
        np.testing.assert_array_equal(kept, best)
        assert not np.array_equal(kept, last)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_and_resumed_is_bit_equal(tmp_path, number):
    whole = run(tmp_path / "whole")
    stopped = run(tmp_path / "parts", evaluate=Stopping(number))
    assert not stopped.finished
    assert 8 <= stopped.step < STEPS
    assert len(steps_of(tmp_path / "parts")) == stopped.step
    resumed = run(tmp_path / "parts")
    assert resumed.finished
    assert steps_of(tmp_path / "parts") == steps_of(tmp_path / "whole")
    for a, b in zip(jax.tree.leaves(resumed.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_handlers_are_put_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    run(tmp_path, steps=3)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_lines_written_after_the_checkpoint_are_dropped_on_resuming(tmp_path):
    run(tmp_path, evaluate=Stopping(signal.SIGTERM))
    made = len(steps_of(tmp_path))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": made + 1, "loss": 123.0}) + "\n" + '{"step": 9, "lo')
    run(tmp_path)
    losses = [row["step"] for row in read_metrics(tmp_path) if "loss" in row]
    assert losses == list(range(1, STEPS + 1))
    assert steps_of(tmp_path)[made + 1] != 123.0


def test_a_finished_run_is_not_run_again(tmp_path):
    first = run(tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text()
    again = run(tmp_path, loss_fn=lambda *_: pytest.fail("trained again"))
    assert again.step == first.step
    assert (tmp_path / "metrics.jsonl").read_text() == lines


def test_saving_without_evaluating(tmp_path):
    assert run(tmp_path, evaluate=None, save_every=10, keep=2).step == STEPS
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"20", "24"}


def test_a_loss_that_is_no_number_ends_the_run_before_it_is_saved(tmp_path):
    def diverging(params, batch, key):
        loss, metrics = toy.loss_fn(params, batch, key)
        return jnp.where(jnp.abs(params["bias"][0]) > 0.2, jnp.nan, loss), metrics

    with pytest.raises(NonFiniteError, match="Lower the learning rate"):
        run(tmp_path, loss_fn=diverging, evaluate=None, save_every=1)
    assert all(np.isfinite(list(steps_of(tmp_path).values())))


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
