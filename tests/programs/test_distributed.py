"""One job over several real processes on this machine, gloo between them, beside the same job in one process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from configs import defaults
from eval.data.protocol import TASK_SPECS
from jaxwhiten import Encoder
from jaxwhiten.training.log import read_metrics
from tests.conftest import ONE_DEVICE, ROOT, own_cache
from tests.programs.runs import WORDS, steps_of, write_table
from train import sbert

MINUTE = 60
PATIENCE = 400  # seconds for what takes some twenty where nothing else runs

_started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def _nobody_stays():
    """No process outlives its test."""
    yield
    while _started:
        with _started.pop() as process:
            process.kill()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return own_cache(tmp_path_factory.mktemp("cache"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def start(count, command, cache):
    """The processes of one job; `{where}` and `{index}` in the command are what differs between them."""
    environment = {**os.environ, "XLA_FLAGS": ONE_DEVICE, "PYTHONPATH": str(ROOT), "JAXWHITEN_CACHE_DIR": str(cache)}
    port = free_port()
    for index in range(count):
        words = [str(word).format(where=f"localhost:{port},{index},{count}", index=index) for word in command]
        _started.append(
            subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return _started[-count:]


def program(name, config, **settings):
    command = ["-m", name, "--config", config, "--distributed={where}"]
    return command + [f"--config.{key}={value}" for key, value in settings.items()]


def finish(processes, code=0):
    """What the processes printed; all have to end with this code."""
    outputs = []
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE)
        outputs.append((process.returncode, out, err))
    assert [found for found, _, _ in outputs] == [code] * len(processes), "\n".join(
        err[-3000:] for _, _, err in outputs
    )
    return outputs


def assert_close(one, other, tolerance):
    """Equal trees of JSON, numbers within the tolerance."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a == (pytest.approx(b, abs=tolerance) if isinstance(a, float) else b)


# --- training ---------------------------------------------------------------------------------------------------------


def scores_of(folder):
    return [row for row in read_metrics(folder) if "loss" not in row]


def assert_same_training(folder, single, steps):
    one, other = steps_of(folder), steps_of(single)
    assert list(one) == list(other) == list(range(1, steps + 1))
    np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=0, atol=1e-5)
    assert len(scores_of(folder)) > 1
    assert_close(scores_of(folder), scores_of(single), 0.02)


SBERT = {
    "max_length": 16,
    "batch_size": 24,
    "buckets": 1,
    "steps": 60,
    "learning_rate": 1e-3,
    "dev": "SICK-R",
    "test": (),
    "evaluate_every": 30,
    "log_every": 1,
    "seed": 3,
}


def write_sick(folder):
    """The benchmark's files with as many rows, of other sentences."""
    folder.mkdir()
    rng, spec = np.random.default_rng(5), TASK_SPECS["SICK-R"]
    for split, name in spec.files.items():
        lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
        for row in range(spec.counts[split]["SICK-R"].total):
            a, b = (" ".join(rng.choice(WORDS, 4)) for _ in range(2))
            lines.append(f"{row}\t{a}\t{b}\t{rng.uniform(1, 5):.3f}\tNEUTRAL")
        (folder / name).write_text("\r\n".join(lines) + "\r\n")


@pytest.fixture(scope="module")
def sbert_settings(tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("rows")
    file = write_table(folder / "rows.tsv")
    write_sick(folder / "SICK")
    data = {
        "file": str(file),
        "folder": str(folder),
        "columns": ("one", "two"),
        "label": "label",
        "classes": ("no", "maybe", "yes"),
    }
    return {"model": str(tiny_model), **{f"data.{name}": value for name, value in data.items()}, **SBERT}


@pytest.fixture(scope="module")
def sbert_alone(sbert_settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    config = defaults.get_config("sbert")
    config.update({**sbert_settings, "output": str(folder), "progress": False})
    sbert.main(config)
    return folder


@pytest.mark.slow
def test_training_on_two_processes_and_then_on_three_is_that_of_one(sbert_settings, sbert_alone, cache, tmp_path):
    """One of two processes is asked to stop: both do, after the same step; the same command goes on with three."""
    out = tmp_path / "run"
    command = program("train.sbert", "configs/defaults.py:sbert", **sbert_settings, output=out)
    processes = start(2, command, cache)
    wait_for(lambda: len(steps_of(out)) >= 5, processes)
    processes[1].send_signal(signal.SIGTERM)
    outputs = finish(processes, 143)
    stopped = len(steps_of(out))
    assert 5 <= stopped < SBERT["steps"]
    assert f"stopped at step {stopped} of {SBERT['steps']}" in outputs[0][2]

    outputs = finish(start(3, command, cache))
    assert_same_training(out, sbert_alone, SBERT["steps"])
    assert "model written from step" in outputs[0][1]
    assert outputs[1][1:] == ("", "")
    one, other = (json.loads((folder / "results.json").read_text()) for folder in (out, sbert_alone))
    assert_close(one["after"], other["after"], 0.02)
    vectors = [Encoder.from_pretrained(f / "model", max_length=16).encode(["a man"]) for f in (out, sbert_alone)]
    np.testing.assert_allclose(*vectors, rtol=0, atol=1e-3)


# --- faults -----------------------------------------------------------------------------------------------------------


def wait_for(condition, processes):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        ended = [process.communicate()[1][-2000:] for process in processes if process.poll() is not None]
        assert not ended, ended
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "count"), [(0, 2), (2, 3)])
def test_when_a_process_dies_the_others_stop_and_name_it(victim, count, sbert_settings, cache, tmp_path):
    out = tmp_path / "run"
    settings = {**sbert_settings, "steps": 100_000, "dev": "", "save_every": 20, "output": out}
    processes = start(count, program("train.sbert", "configs/defaults.py:sbert", **settings), cache)
    wait_for(lambda: len(steps_of(out)) >= 30, processes)
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
