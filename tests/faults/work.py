"""What tests.faults.kill kills: one operation again and again, in a process of its own, until the end comes.

`python -m tests.faults.work OPERATION FOLDER MODEL` prints `ready` when everything is loaded and compiled.
With a number behind, that is how many rounds are made, and nothing is printed.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.encoding import store
from tests.sentences import generated

TEXTS = generated(400)
POOLINGS = ("mean", "cls")
WIDTH = 32  # sentences a block of `encode`


def prepare(folder):
    """Writes the inputs."""
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")


def commands(operation, folder, model):
    """The words of each command of an operation."""
    of_model = ["--model", str(model), "--pooling", "mean", "--max-length", "32"]
    texts = str(folder / "texts.txt")
    return {
        "encode": [["encode", texts, "-o", str(folder / "out.npy"), "--block", str(WIDTH), "--overwrite", *of_model]],
        "index": [["index", texts, "-o", str(folder / "docs.db"), "--bytes", "4", "--overwrite", *of_model]],
    }[operation]


def store_entries(folder, encoder, number):
    """One round of the embedding store, in a folder of its own; goes on where a killed process stopped."""
    encoder.view.core.engine.layout.token_budget = 256
    store._SECONDS = 0  # each batch is written
    return store.EmbeddingStore(folder / f"store-{number}").encode(encoder, TEXTS, pooling=POOLINGS)


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
