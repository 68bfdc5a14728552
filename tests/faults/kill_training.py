"""kill -9 at random moments of a training; what is left must be readable, and go on to the same end bit for bit.

A run is killed and started again until it ends, then the next one with another seed begins, until there were enough
kills. Every run is compared with an uninterrupted one of the same seed: the loss of every step as it was written, and
at the end the bytes of the model.
"""

import random
import subprocess
import time

from tests.conftest import own_cache
from tests.programs.runs import model_bytes, softmax_arguments, start, steps_of

MOST_STEPS = 600
LONGEST = 4.0  # seconds from a process's first step to the latest kill; the first checkpoint takes more than one


def killed(folder, model, kills, seed=0):
    """Kills trainings `kills` times.

    Returns:
      How often a training was killed, and how many temporary files the kills left.
    """
    rng = random.Random(seed)
    steps = min(MOST_STEPS, 60 * kills)
    arguments = softmax_arguments(model, folder) | {"steps": str(steps), "save_every": "30"}
    done, run_seed, left = 0, 0, 0
    while done < kills:
        settings = arguments | {"seed": str(run_seed)}
        whole, run = folder / f"whole-{run_seed}", folder / f"run-{run_seed}"
        _finish(settings | {"output": str(whole)}, folder)
        expected = steps_of(whole)
        while done < kills and _killed_once(settings | {"output": str(run)}, run, folder, rng):
            done += 1
            written = steps_of(run)
            assert written.items() <= expected.items(), sorted(written.items() - expected.items())[:3]
            if (run / "model").exists():  # killed in its last moments: the model is there whole
                assert model_bytes(run) == model_bytes(whole)
        left += len([path for path in run.rglob("*") if ".tmp" in path.name or "orbax-checkpoint-tmp" in path.name])
        _finish(settings | {"output": str(run)}, folder)
        assert steps_of(run) == expected
        assert model_bytes(run) == model_bytes(whole)
        run_seed += 1
    return done, left


def _start(settings, folder):
    # To a file: nobody reads a pipe while the run goes on.
    with open(folder / "words", "wb") as words:
        return start("sbert", settings, own_cache(folder / "cache"), stdout=words, stderr=subprocess.STDOUT)


def _finish(settings, folder):
    process = _start(settings, folder)
    process.wait(timeout=600)
    assert process.returncode == 0, (folder / "words").read_text(errors="replace")[-3000:]


def _size(run):
    path = run / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def _killed_once(settings, run, folder, rng):
    """Whether the run could be killed; False if it was at its end before."""
    process = _start(settings, folder)
    deadline = time.monotonic() + 300
    before = now = _size(run)
    while process.poll() is None and now <= before and time.monotonic() < deadline:
        time.sleep(0.005)
        before, now = now, _size(run)  # cut back to the checkpoint first, then longer with every step
    time.sleep(rng.uniform(0, LONGEST))
    process.kill()
    process.wait()
    assert process.returncode in (-9, 0), (folder / "words").read_text(errors="replace")[-3000:]
    return process.returncode == -9
