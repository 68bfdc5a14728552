"""Training programs in processes of their own: made-up rows, a start, a wait, and the losses of every step."""

import os
import subprocess
import sys

import numpy as np

from jaxwhiten.training.log import read_metrics
from tests.conftest import ONE_DEVICE, ROOT
from tests.sentences import generated


def write_table(path, rows=96):
    """Labelled pairs of made-up sentences, with a header."""
    texts = generated(2 * rows)
    lines = [f"{texts[row]}\t{texts[rows + row]}\t{('yes', 'no', 'maybe')[row % 3]}" for row in range(rows)]
    path.write_text("\n".join(["one\ttwo\tlabel", *lines]) + "\n")
    return path


def write_questions(path, rows, seed=0):
    """Question pairs in Quora's columns: half of them the same words in another order, half unrelated."""
    rng = np.random.default_rng(seed)
    words = np.array(["".join(rng.choice(list("abcdefghiklmnoprstuvw"), rng.integers(2, 7))) for _ in range(600)])
    lines = ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"]
    for i in range(rows):
        first, duplicate = list(rng.choice(words, rng.integers(5, 12))), int(rng.integers(2))
        second = list(rng.permutation(first)) if duplicate else list(rng.choice(words, rng.integers(5, 12)))
        texts = (f"{' '.join(q).capitalize()}?" for q in (first, second))
        # Every fifth query and every seventh document is one that was there before, so some have several answers.
        numbers = (i - (i % 5 == 4), i - (i % 7 == 6))
        lines.append("\t".join([str(i), f"q{numbers[0]}", f"d{numbers[1]}", *texts, str(duplicate)]) + "\n")
    path.write_text("".join(lines))
    return path


def softmax_arguments(model, folder):
    """Settings of a run of softmax on a table of that folder, without a dev set."""
    data = {"file": str(write_table(folder / "rows.tsv")), "columns": ("one", "two"), "label": "label"}
    data |= {"classes": ("no", "maybe", "yes")}
    sizes = {"max_length": 16, "batch_size": 8, "buckets": 1, "steps": 200, "learning_rate": 1e-3}
    shown = {"dev": "", "test": (), "save_every": 25, "log_every": 1, "output": str(folder / "run")}
    return {"model": str(model), **{f"data.{name}": value for name, value in data.items()}, **sizes, **shown}


def start(program, arguments, cache, *words, **options):
    """`python -m train.PROGRAM` with its defaults, these settings and one device."""
    command = [sys.executable, "-m", f"train.{program}", "--config", f"configs/defaults.py:{program}", *words]
    command += [f"--config.{name}={value}" for name, value in arguments.items()]
    environment = {**os.environ, "XLA_FLAGS": ONE_DEVICE, "JAXWHITEN_CACHE_DIR": str(cache)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(command, cwd=ROOT, env=environment, **options)


def steps_of(folder):
    """The loss of every step that was logged."""
    return {row["step"]: row["loss"] for row in read_metrics(folder) if "loss" in row}
