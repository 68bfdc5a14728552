"""What tests.faults.kill kills: one operation again and again, in a process of its own, until the end comes.

`python -m tests.faults.work OPERATION FOLDER MODEL` prints `ready` when everything is loaded and compiled.
With a number behind, that is how many rounds are made, and nothing is printed.
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.encoding import store
from tests.sentences import generated

TEXTS = generated(400)
NEW = generated(20, seed=1)
POOLINGS = ("mean", "cls")
ROWS, COLUMNS = 3000, 384
WIDTH = 32  # sentences a block of `encode`


def vectors():
    """What `fit` is run on: anything but isotropic."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(ROWS, COLUMNS)) * np.linspace(0.1, 3, COLUMNS) + 0.5).astype(np.float32)


def prepare(folder):
    """Writes the inputs."""
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    (folder / "new.txt").write_text("\n".join(NEW) + "\n", encoding="utf-8")
    for name, texts in (("texts", TEXTS), ("new", NEW)):
        rows = ({"id": f"{name} {number}", "text": text} for number, text in enumerate(texts))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    np.save(folder / "vectors.npy", vectors())


def commands(operation, folder, model):
    """The words of each command of an operation."""
    of_model = ["--model", str(model), "--pooling", "mean", "--max-length", "32"]
    texts = str(folder / "texts.txt")
    outputs = ["-o", str(folder / "out.safetensors"), "--moments", str(folder / "out.moments")]
    index = ["-o", str(folder / "docs.db")]
    return {
        "encode": [["encode", texts, "-o", str(folder / "out.npy"), "--block", str(WIDTH), "--overwrite", *of_model]],
        "fit": [["fit", str(folder / "vectors.npy"), "--overwrite", *outputs]],
        "index": [["index", texts, *index, "--bytes", "4", "--overwrite", *of_model]],
        "base": [["index", texts, *index, "--bytes", "8", "--rescore", "int8", *of_model]],
        "named": [["index", str(folder / "texts.jsonl"), *index, "--id", "id", "--bytes", "8", *of_model]],
        "add": [["add", index[1], str(folder / "new.txt")]],
        "change": [  # until the file is compacted, and beyond
            ["add", index[1], str(folder / "new.jsonl")],
            ["remove", index[1], "--file", str(folder / "new.jsonl"), "--id", "id"],
        ],
    }[operation]


def store_entries(folder, encoder, number):
    """One round of the embedding store, in a folder of its own; goes on where a killed process stopped."""
    encoder.view.core.engine.layout.token_budget = 256
    store._SECONDS = 0  # each batch is written
    return store.EmbeddingStore(folder / f"store-{number}").encode(encoder, TEXTS, pooling=POOLINGS)


def begin(operation, folder, model):
    """What an operation needs besides the inputs."""
    if base := {"add": "base", "change": "named"}.get(operation):
        quietly(*commands(base, folder, model))


def quietly(*several):
    """Runs commands whose own words go to stderr, so that `ready` is all there is to read; the first bad exit code."""
    with contextlib.redirect_stdout(sys.stderr):
        return next(filter(None, map(cli.main, several)), 0)


def run(operation, folder, model, rounds=None):
    """The operation, `rounds` times; for ever by default."""
    if operation == "store":
        encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
    if rounds is None:
        with tempfile.TemporaryDirectory() as name:  # everything is compiled once, so that the kills hit the writing
            warm = Path(name)
            prepare(warm)
            if operation == "store":
                store_entries(warm, encoder, 0)
            else:
                begin(operation, warm, model)
                quietly(*commands(operation, warm, model))
        print("ready", flush=True)
    number = 0
    while rounds is None or number < rounds:
        if operation == "store":
            while (folder / f"store-{number}" / "done").exists():
                number += 1
            store_entries(folder, encoder, number)
            (folder / f"store-{number}" / "done").touch()
        elif quietly(*commands(operation, folder, model)):
            sys.exit(3)
        number += 1


if __name__ == "__main__":
    os.environ["PYTHONWARNINGS"] = "ignore"
    run(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))
