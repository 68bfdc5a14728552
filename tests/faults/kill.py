"""kill -9 at random moments of encoding and building an index; what is left is whole.

After every kill the output under its own name is read: it is the one of an earlier, whole run, or the new one, never
a part. At the end the operation is run once more to its end, and the result is compared with an uninterrupted one.
"""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from jaxwhiten import Encoder
from jaxwhiten.search import load_index
from tests.faults import work
from tests.tiny import by_pooling

OPERATIONS = ("store", "encode", "index")
ROOT = Path(__file__).resolve().parents[2]
LONGEST = 2.0  # seconds from `ready` to the latest kill


def child(folder, *command, ready=True, **environment):
    """A Python process; `ready`: at the first moment at which it can be killed while it works.

    All children of a folder have the same compilation cache and write their errors to a file there, since a pipe that
    nobody reads stops a child once it is full.
    """
    environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **environment}
    environment |= {"JAX_COMPILATION_CACHE_DIR": f"{folder}/xla", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with open(folder / "stderr", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    assert not ready or "ready\n" in iter(process.stdout.readline, ""), errors_of(folder)
    return process


def errors_of(folder):
    return (folder / "stderr").read_text(errors="replace")[-3000:]


def kill_after(seconds, process, folder):
    """Kills a process that must still be at work by then, and returns what it printed."""
    time.sleep(seconds)
    assert process.poll() is None, errors_of(folder)
    process.kill()
    return process.communicate()[0]


def finish(process, folder):
    """Waits for the end, which must be a good one."""
    process.communicate(timeout=300)
    assert process.returncode == 0, errors_of(folder)


def run_once(operation, folder, model):
    finish(child(folder, "-m", "tests.faults.work", operation, folder, model, 1, ready=False), folder)


class Expected:
    """The uninterrupted results."""

    def __init__(self, operation, folder, model):
        self.encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
        self.vectors = by_pooling(self.encoder, work.TEXTS, work.POOLINGS)
        if operation != "store":
            run_once(operation, folder, model)
        if operation == "index":
            self.answers = load_index(folder / "docs.db").search(self.vectors["mean"][:20], 5)


def check(operation, folder, expected):
    """What lies under the output's own name is whole and right."""
    if operation == "store":
        for file in folder.glob("store-*/*.db"):
            with contextlib.closing(sqlite3.connect(file)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], file
    elif operation == "encode":
        np.testing.assert_allclose(np.load(folder / "out.npy"), expected.vectors["mean"], atol=1e-5)
    else:
        scores, ids = load_index(folder / "docs.db").search(expected.vectors["mean"][:20], 5)
        np.testing.assert_allclose(scores, expected.answers[0], atol=1e-4)
        np.testing.assert_array_equal(ids, expected.answers[1])


def killed(operation, folder, model, kills, seed=0):
    """Kills the operation `kills` times; returns how many temporary files the kills left."""
    rng = random.Random(seed)
    work.prepare(folder)
    expected = Expected(operation, folder, model)
    moments = set()  # how many files there were: the kills must not all hit the same
    for _ in range(kills):
        process = child(folder, "-m", "tests.faults.work", operation, folder, model)
        kill_after(rng.uniform(0, LONGEST), process, folder)
        moments.add(len([path for path in folder.rglob("*") if (folder / "xla") not in path.parents]))
        check(operation, folder, expected)
    left = len([path for path in folder.rglob(".*") if path.name.endswith(".tmp") or ".writing" in path.name])
    if operation != "store":
        run_once(operation, folder, model)
        check(operation, folder, expected)
        assert not list(folder.glob("*-journal"))
        return left
    for place in folder.glob("store-*"):
        found = work.store_entries(folder, expected.encoder, place.name.rpartition("-")[2])
        for name in work.POOLINGS:
            np.testing.assert_allclose(found[name], expected.vectors[name], atol=1e-5)
        assert not list(place.rglob("*-journal"))
    assert kills < 10 or len(moments) > kills // 3, moments
    return left
