"""kill -9 at random moments of `embed_files`: of the program with all that it started, and on Ray of a worker.

Every run that was killed is started again on the same folder until one ends by itself; what is there then is the
output of an unbroken run: every row once, bit for bit. On Ray the first kill and about every third later one hit a
worker, which the run outlives.
"""

import contextlib
import os
import random
import signal
import subprocess
import time

import numpy as np

from jaxwhiten.runners import Parts
from tests.faults.kill import child, finish
from tests.sentences import generated

RUNNERS = ("local", "ray")
ROWS, PART_ROWS = 4000, 20
PROGRAM = """
import sys
from jaxwhiten import Encoder
from jaxwhiten.runners import Source, embed_files

folder, model, runner, rows, parts = sys.argv[1:]
encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
encoder.encode(["ready"])
print("ready", flush=True)
how = {"part_rows": int(rows), "ray": 2 * (runner == "ray"), "show_progress": False}
embed_files([Source(f"{folder}/a.txt")], parts, encoder, **how)
"""


def start(folder, model, runner, parts):
    """The program, at the first moment at which it can be killed while it works."""
    command = "-c", PROGRAM, folder, model, runner, PART_ROWS, parts
    return child(folder, *command, RAY_USAGE_STATS_ENABLED="0")


def done(parts):
    return len(list(parts.glob("part-*.json")))


def _workers(process):
    """The processes of Ray's actors that a program started."""
    found = subprocess.run(["pgrep", "-s", str(process.pid), "-f", "_Worker"], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def _kill(process):
    """The program and every process of its session, which on Ray are its workers."""
    os.killpg(process.pid, signal.SIGKILL)
    for pid in subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True, text=True).stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    process.communicate()


def killed(folder, model, runner, kills, seed=0):
    """Kills and goes on, and compares with an unbroken run.

    Returns:
      Kills of the program, of workers, and numbers of parts that stood after the kills of the program.
    """
    rng, texts = random.Random(seed), generated(ROWS)
    (folder / "a.txt").write_text("\n".join(texts))
    parts = folder / f"parts-{runner}"
    finish(start(folder, model, "local", folder / "whole"), folder)
    programs = workers = 0
    seen = []
    while programs + workers < kills:
        process = start(folder, model, runner, parts)
        before, limit = done(parts), time.monotonic() + 120
        while done(parts) == before and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.3))
        while runner == "ray" and programs + workers < kills - 1 and (not workers or rng.random() < 1 / 3):
            if victims := _workers(process):
                os.kill(rng.choice(victims), signal.SIGKILL)
                workers += 1
            elif process.poll() is not None:
                break
            time.sleep(rng.uniform(0, 2))
        if process.poll() is not None:  # it ended before it could be killed
            _forget(parts, rng)
            continue
        _kill(process)
        programs += 1
        seen.append(done(parts))
        if seen[-1] > ROWS / PART_ROWS * 0.8:
            _forget(parts, rng)
    finish(start(folder, model, runner, parts), folder)
    whole, broken = Parts(folder / "whole"), Parts(parts)
    (ids, vectors), (found, others) = whole.all(), broken.all()
    assert found == ids == [f"a.txt:{i + 1}" for i in range(ROWS)]
    if runner == "local":
        np.testing.assert_array_equal(others, vectors)
    np.testing.assert_allclose(others, vectors, atol=1e-6)
    np.testing.assert_allclose(broken.moments().M2, whole.moments().M2, rtol=1e-5, atol=1e-6)
    return programs, workers, seen


def _forget(parts, rng):
    """Takes most parts away, at random, so that there is work for further kills; a killed writer leaves as little."""
    (parts / "manifest.json").unlink(missing_ok=True)
    for file in parts.glob("part-*.json"):
        if rng.random() < 0.8:
            file.unlink()
