"""One job over several real processes on this machine, gloo between them, beside the same job in one process."""

import json
import re
import signal
import socket
import time

import jax
import numpy as np
import pytest

from configs import defaults
from eval.data.protocol import TASK_SPECS
from jaxwhiten import Encoder
from jaxwhiten.training.log import read_metrics
from tests.conftest import own_cache
from tests.programs import runs
from tests.programs.runs import softmax_arguments, steps_of
from tests.sentences import generated
from train import sbert

pytestmark = pytest.mark.slow
MINUTE = 60
PATIENCE = 400  # seconds for what takes some twenty where nothing else runs
STEPS = 60


@pytest.fixture
def start(tmp_path):
    """Starts the processes of one job; none outlives its test."""
    started, cache = [], own_cache(tmp_path / "cache")

    def run(count, settings):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            place = f"localhost:{probe.getsockname()[1]}"
        for index in range(count):
            started.append(runs.start("sbert", settings, cache, f"--distributed={place},{index},{count}"))
        return started[-count:]

    yield run
    for process in started:
        with process:
            process.kill()


def finish(processes, code=0):
    """What the processes printed; all have to end with this code."""
    outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    codes = [process.returncode for process in processes]
    assert codes == [code] * len(processes), "\n".join(err[-3000:] for _, err in outputs)
    return outputs


def wait_for(steps, folder, processes):
    """Waits until so many steps are logged."""
    deadline = time.monotonic() + PATIENCE
    while len(steps_of(folder)) < steps:
        ended = [process.communicate()[1][-2000:] for process in processes if process.poll() is not None]
        assert not ended, ended
        assert time.monotonic() < deadline
        time.sleep(0.02)


def scores_of(folder):
    """The scores during a run and after it."""
    during = [row for row in read_metrics(folder) if "loss" not in row]
    assert len(during) > 1
    return [*during, json.loads((folder / "results.json").read_text())["after"]]


def assert_close(one, other, tolerance):
    """Equal trees of JSON, numbers within the tolerance."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a == (pytest.approx(b, abs=tolerance) if isinstance(a, float) else b)


@pytest.fixture
def settings(tmp_path, tiny_model):
    """Those of a run that is scored on SICK's files, which have as many rows as the benchmark's, of other sentences."""
    rng, spec, texts = np.random.default_rng(5), TASK_SPECS["SICK-R"], generated(200)
    (tmp_path / "SICK").mkdir()
    for split, name in spec.files.items():
        lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
        for row in range(spec.counts[split]["SICK-R"].total):
            a, b = rng.choice(texts, 2)
            lines.append(f"{row}\t{a}\t{b}\t{rng.uniform(1, 5):.3f}\tNEUTRAL")
        (tmp_path / "SICK" / name).write_text("\r\n".join(lines) + "\r\n")
    scores = {"data.folder": str(tmp_path), "dev": "SICK-R", "evaluate_every": 30, "save_every": 0}
    return softmax_arguments(tiny_model, tmp_path) | scores | {"batch_size": 24, "steps": STEPS, "seed": 3}


def test_training_on_two_processes_and_then_on_three_is_that_of_one(settings, start, tmp_path):
    """One of two processes is asked to stop: both do, after the same step; the same command goes on with three."""
    out, single = tmp_path / "run", tmp_path / "alone"
    config = defaults.get_config("sbert")
    config.update({**settings, "output": str(single), "progress": False})
    sbert.main(config)

    processes = start(2, settings | {"output": out})
    wait_for(5, out, processes)
    processes[1].send_signal(signal.SIGTERM)
    outputs = finish(processes, 143)
    stopped = len(steps_of(out))
    assert 5 <= stopped < STEPS
    assert f"stopped at step {stopped} of {STEPS}" in outputs[0][1]

    outputs = finish(start(3, settings | {"output": out}))
    assert "model written from step" in outputs[0][0]
    assert outputs[1] == ("", "")
    losses = [steps_of(folder) for folder in (out, single)]
    assert list(losses[0]) == list(losses[1]) == list(range(1, STEPS + 1))
    np.testing.assert_allclose(*(list(one.values()) for one in losses), rtol=0, atol=1e-5)
    assert_close(scores_of(out), scores_of(single), 0.02)
    vectors = [Encoder.from_pretrained(f / "model", max_length=16).encode(["a man"]) for f in (out, single)]
    np.testing.assert_allclose(*vectors, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("victim", "count"), [(0, 2), (2, 3)])
def test_when_a_process_dies_the_others_stop_and_name_it(victim, count, settings, start, tmp_path):
    out = tmp_path / "run"
    processes = start(count, settings | {"steps": 100_000, "dev": "", "save_every": 20, "output": out})
    wait_for(30, out, processes)
    processes[victim].kill()
    killed = time.monotonic()
    for index, process in enumerate(processes):
        err = process.communicate(timeout=MINUTE)[1]
        if index != victim:
            assert process.returncode not in (0, None)
            pattern = r"leader task was preempted/died" if victim == 0 else rf"(?s)unhealthy.*?\n{victim}\n"
            assert re.search(pattern, err), err[-3000:]
    assert time.monotonic() - killed < MINUTE
    steps = [path for path in (out / "checkpoints").iterdir() if path.name.isdigit()]
    assert steps  # those that have their final name are whole
    assert all((path / "_CHECKPOINT_METADATA").is_file() for path in steps)
