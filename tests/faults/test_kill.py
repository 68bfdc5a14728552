"""kill -9 at random moments: outputs are whole after it, and a run that goes on ends as one that was not killed.

`JAXWHITEN_FAULT_KILLS=50` makes more kills of every operation.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.runners import Parts
from jaxwhiten.search import load_index
from jaxwhiten.training.log import read_metrics
from tests.conftest import own_cache
from tests.sentences import generated

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("JAXWHITEN_FAULT_KILLS", "2"))
TEXTS = generated(400)
# A round of each operation, of which a process does one after another. The first one compiles.
WORK = {
    "index": "assert cli.main(line.split()) == 0",
    "store": "EmbeddingStore(f'store-{number}').encode(encoder, texts)",
}
PROGRAM = """
import sys
from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.encoding import EmbeddingStore, store
model, work, rounds = sys.argv[1:]
texts = open("texts.txt").read().splitlines()
encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
encoder.view.core.engine.layout.token_budget, store._SECONDS = 256, 0  # each batch is written
line = f"index texts.txt -o docs.db --bytes 4 --overwrite --quiet --model {model} --pooling mean --max-length 32"
for number in range(int(rounds)):
    exec(work)
    if number == 0:
        print("ready", flush=True)
        sys.stdin.readline()
"""


def started(folder, *words):
    """A Python process in a folder, where it keeps what it compiles. A pipe of errors would stop it once it is full."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "JAXWHITEN_CACHE_DIR": own_cache(folder / "cache")}
    environment["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/xla"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with open(folder / "errors", "wb") as errors:
        command = [sys.executable, *map(str, words)]
        return subprocess.Popen(command, cwd=folder, env=environment, stderr=errors, start_new_session=True, **pipes)


def errors_of(folder):
    return (folder / "errors").read_text(errors="replace")[-3000:]


def finish(process, folder):
    process.communicate(timeout=300)
    assert process.returncode == 0, errors_of(folder)


def stored(folder, encoder):
    """What the last store holds, or still encodes; a file of it that was damaged is a warning, and so an error."""
    places = sorted(folder.glob("store-*"), key=os.path.getmtime)
    found = np.array(EmbeddingStore(places[-1]).encode(encoder, TEXTS))
    for place in places:
        shutil.rmtree(place)
    return found


READ = {
    "index": lambda folder, encoder: np.concatenate(load_index(folder / "docs.db").search(encoder.encode(TEXTS), 5)),
    "store": stored,
}


@pytest.mark.parametrize("name", WORK)
def test_an_output_is_whole_after_every_kill(name, tiny_model, tmp_path):
    """Two processes write to one store."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    encoder, rng = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32), random.Random(0)

    def start(rounds):
        return started(tmp_path, "-c", PROGRAM, tiny_model, WORK[name], rounds)

    def after(rounds):
        finish(start(rounds), tmp_path)
        return READ[name](tmp_path, encoder)

    expected = after(1)
    for _ in range(KILLS):
        processes = [start(10**9) for _ in range(2 if name == "store" else 1)]
        for process in processes:
            assert "ready\n" in iter(process.stdout.readline, ""), errors_of(tmp_path)
        for process in processes:
            print(file=process.stdin, flush=True)
        time.sleep(rng.uniform(0, 2))
        for process in processes:
            assert process.poll() is None, errors_of(tmp_path)
            process.kill()
            process.communicate()
        found = READ[name](tmp_path, encoder)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(after(1), expected, atol=1e-4)
    assert not list(tmp_path.glob("*-journal"))


# Commands that go on where they were killed, and the files by which their progress is seen.
EMBED = "embed texts.txt --ray 2 --part-rows 20 --pooling mean --max-length 32"
TRAIN = "train pairs.tsv --max-length 16 --batch-size 8 --steps 100 --save-every 10 --evaluate-every 50 --held-out 0.3"
RUNS = {
    "train": (TRAIN, "out.training/checkpoints/*"),
    "embed on Ray": (EMBED, "out/part-*.json"),
}


def session(process, *named):
    """The processes that a process started, and itself; on Ray there are many."""
    found = subprocess.run(["pgrep", "-s", str(process.pid), *named], capture_output=True, text=True)
    return list(map(int, found.stdout.split()))


def result(folder):
    """The losses of all steps and the weights; or the ids and vectors."""
    if (folder / "model.safetensors").exists():
        losses = {row["step"]: row["loss"] for row in read_metrics(f"{folder}.training") if "loss" in row}
        return losses, np.fromfile(folder / "model.safetensors", np.uint8)
    return Parts(folder).all()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_goes_on_to_the_same_end(name, shallow_model, tmp_path):
    """Killed, and stopped by SIGTERM where it trains; on Ray a worker dies first, which the run outlives."""
    if "Ray" in name:
        pytest.importorskip("ray")
    texts, (command, progress) = generated(4000), RUNS[name]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    pairs = [f"{a}\t{b}" for a, b in zip(texts[:60], texts[60:120], strict=True)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["question\tanswer", *pairs]))

    def start(out):
        words = f"-m jaxwhiten.commands.cli {command} --model {shallow_model} -o {out}"
        return started(tmp_path, *words.split())

    def advance(process):
        before = set(tmp_path.glob(progress))
        while process.poll() is None and set(tmp_path.glob(progress)) <= before:
            time.sleep(0.01)

    def check():
        (names, expected), (same, found) = result(tmp_path / "whole"), result(tmp_path / "out")
        assert same == names
        np.testing.assert_allclose(found, expected, atol=1e-6)

    finish(start("whole"), tmp_path)
    rng, kills = random.Random(0), 0
    while kills < KILLS:
        process = start("out")
        advance(process)
        if "Ray" in name and not kills:
            os.kill(session(process, "-f", "_Worker")[0], signal.SIGKILL)
            advance(process)
        time.sleep(rng.uniform(0, 0.3))
        number = signal.SIGTERM if name == "train" and kills % 2 else signal.SIGKILL
        for pid in session(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        process.communicate()
        if process.returncode == 0:  # it was at its end
            check()
            for folder in tmp_path.glob("out*"):
                shutil.rmtree(folder)
            continue
        assert process.returncode == (143 if number == signal.SIGTERM else -number), errors_of(tmp_path)
        assert name != "train" or not (tmp_path / "out").exists()
        kills += 1
    finish(start("out"), tmp_path)
    check()
