"""kill -9 at random moments of encoding, fitting, building an index, adding to it and training; what is left is whole.

`python -m tests.faults.kill 50` kills each operation 50 times and prints the findings (docs/evidence/reliability.md);
names of operations behind it leave out the others, and `local` and `ray` are the runners of `kill_embed`.
After every kill the output under its own name is read: it is the one of an earlier, whole run, or the new one, never
a part. At the end the operation is run once more to its end, and the result is compared with an uninterrupted one.
"""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from jaxwhiten import Encoder, Whitening
from jaxwhiten.search import load_index
from jaxwhiten.whitening.moments import Moments
from tests.faults import kill_embed, kill_training, work

OPERATIONS = ("store", "encode", "fit", "index", "add", "train")
ROOT = Path(__file__).resolve().parents[2]
LONGEST = 2.0  # seconds from `ready` to the latest kill


class Child:
    """The operation in processes of its own, all with the same devices and compilation cache."""

    def __init__(self, operation, folder, model):
        self.folder = folder
        self.command = [sys.executable, "-m", "tests.faults.work", operation, str(folder), str(model)]
        self.environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        self.environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(folder / "xla"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def start(self, *more):
        # Errors go to a file: a pipe nobody reads stops the child once it is full.
        with open(self.folder / "stderr", "wb") as errors:
            return subprocess.Popen(
                [*self.command, *more],
                cwd=ROOT,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def errors(self):
        return (self.folder / "stderr").read_text(errors="replace")[-3000:]

    def once(self):
        """Runs to the end."""
        process = self.start("1")
        process.communicate(timeout=300)
        assert process.returncode == 0, self.errors()


class Expected:
    """The uninterrupted results."""

    def __init__(self, operation, folder, model, child):
        self.encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
        self.vectors = self.encoder.encode(work.TEXTS, pooling=work.POOLINGS)
        if operation == "add":
            work.quietly(work.command("base", folder, model))
            self.size = len(work.TEXTS)
        elif operation != "store":
            child.once()
        if operation == "fit":
            self.m2 = Moments.load(folder / "out.moments").M2
            self.kernel = Whitening.load(folder / "out.safetensors").kernel
        if operation == "index":
            self.answers = load_index(folder / "index").search(self.vectors["mean"][:20], 5)


def check(operation, folder, expected):
    """What lies under the output's own name is whole and right."""
    if operation == "store":
        for shard in folder.glob("store-*/*/shard-*.npy"):
            found = np.load(shard)
            number = int(shard.stem.split("-")[2])
            rows = slice(8 * number, 8 * number + len(found))
            assert any(np.allclose(found, expected.vectors[name][rows], atol=1e-5) for name in work.POOLINGS), shard
    elif operation == "encode":
        np.testing.assert_allclose(np.load(folder / "out.npy"), expected.vectors["mean"], atol=1e-5)
    elif operation == "fit":
        for found, wanted in zip(Whitening.load(folder / "out.safetensors").kernel, expected.kernel, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-6)
        np.testing.assert_allclose(Moments.load(folder / "out.moments").M2, expected.m2, rtol=1e-6)
    elif operation == "add":
        index = load_index(folder / "index")
        times, rest = divmod(index.size - len(work.TEXTS), len(work.NEW))
        assert (rest, index.size >= expected.size) == (0, True)
        assert list(index.documents) == [*work.TEXTS, *work.NEW * times]
        expected.size = index.size
        assert (index.search(expected.vectors["mean"][:20], 1)[1][:, 0] == np.arange(20)).all()
    else:
        scores, ids = load_index(folder / "index").search(expected.vectors["mean"][:20], 5)
        np.testing.assert_allclose(scores, expected.answers[0], atol=1e-4)
        np.testing.assert_array_equal(ids, expected.answers[1])


def finish(operation, folder, child, expected):
    """Runs to the end, and compares."""
    if operation == "store":
        for place in folder.glob("store-*"):
            found = work.store_entries(folder, expected.encoder, place.name.rpartition("-")[2])
            for name in work.POOLINGS:
                np.testing.assert_allclose(found[name], expected.vectors[name], atol=1e-5)
            assert not list(place.rglob("shard-*"))
    else:
        child.once()
        check(operation, folder, expected)
    if operation == "index":
        whole = [path for path in (folder / "index").iterdir() if not path.name.startswith(".")]
        assert len(whole) == 3, whole  # header, vectors, texts


def killed(operation, folder, model, kills, seed=0):
    """Kills the operation `kills` times, and says what happened.

    Returns:
      How often the process was killed, and how many temporary files the kills left.
    """
    if operation == "train":
        return kill_training.killed(folder, model, kills, seed)
    rng = random.Random(seed)
    work.prepare(folder)
    child = Child(operation, folder, model)
    expected = Expected(operation, folder, model, child)
    moments = set()  # how many files there were: the kills must not all hit the same
    for _ in range(kills):
        process = child.start()
        assert process.stdout.readline() == "ready\n", child.errors()
        time.sleep(rng.uniform(0, LONGEST))
        assert process.poll() is None, child.errors()
        process.kill()
        process.communicate()
        moments.add(len([path for path in folder.rglob("*") if (folder / "xla") not in path.parents]))
        check(operation, folder, expected)
    left = len([path for path in folder.rglob(".*") if path.name.endswith(".tmp") or ".writing" in path.name])
    finish(operation, folder, child, expected)
    assert operation != "store" or kills < 10 or len(moments) > kills // 3, moments
    return kills, left


def findings(operation, folder, model, kills):
    """What the kills of an operation, or of a runner of `kill_embed`, found."""
    if operation in kill_embed.RUNNERS:
        programs, workers, seen = kill_embed.killed(folder, model, operation, kills)
        parts = sorted(set(seen))
        return (
            f"the program killed {programs} times and a worker {workers} times, {parts} parts there; the output equal"
        )
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
        count, left = killed(operation, folder, model, kills)
    whole = "the output whole each time, the resumed result equal"
    return f"killed {count} times, {whole}; {left} temporary files left by the kills"


def main(kills, operations=OPERATIONS):
    """The operations in turn."""
    from tests.tiny import write_model

    warnings.simplefilter("ignore")
    for operation in operations:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            os.environ["JAXWHITEN_CACHE_DIR"] = str(folder / "cache")
            started = time.monotonic()
            found = findings(operation, folder, write_model(folder / "model"), kills)
            print(f"{operation}, {time.monotonic() - started:.0f} s: {found}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] or OPERATIONS)
