"""Banking77 and the Chinese STS-B by MTEB's own evaluators and by our programs, from local files.

`python -m eval.mteb DATA --model NAME=MODEL [--model ...] -o runs/mteb.json`

DATA has classification/banking77 (train.csv, test.csv: text, category) and sts_zh (STS-B.test.data: two sentences and a
score, split by tabs). Encoders with a prompt named query use it on every text.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from eval import published
from eval.classification import fit, predict
from eval.common import say, versions
from eval.report import Table
from jaxwhiten import Encoder, Moments, Whitening, io, metrics
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.export.mteb import MTEBEncoder

BANKING, STS = "Banking77Classification", "STSB"
GAMMAS = (0.25, 1.0)
DRAWS, SHOTS = 10, 8  # MTEB's: training sets, and rows of each class in them
_PENALTY = 1.0  # of scikit-learn's logistic regression, over all rows


class Stored(MTEBEncoder):
    """The model for MTEB, with vectors from the cache."""

    def encode(self, inputs: Any, **about: Any) -> np.ndarray:
        """The vector of each text of MTEB's batches."""
        texts = [text for batch in inputs for text in batch["text"]]
        vectors: np.ndarray = self._whitened(EmbeddingStore().encode(self.encoder, texts))
        return vectors


def read(folder: Path) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """The columns of each split of each task, as MTEB names them."""
    banking = {}
    for split in ("train", "test"):
        with (folder / "classification/banking77" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file))
        banking[split] = {"text": [row["text"] for row in found], "label": [row["category"] for row in found]}
    names = sorted(set(banking["train"]["label"]))
    for columns in banking.values():
        columns["label"] = [names.index(label) for label in columns["label"]]
    lines = (folder / "sts_zh/STS-B.test.data").read_text(encoding="utf-8").splitlines()
    first, second, score = zip(*(line.split("\t") for line in lines if line), strict=True)
    sts = {"sentence1": list(first), "sentence2": list(second), "score": [float(value) for value in score]}
    return {BANKING: banking, STS: {"test": sts}}


def theirs(model: MTEBEncoder, name: str, splits: dict[str, dict[str, list[Any]]]) -> float:
    """MTEB's main score in points, with its download replaced by the local rows."""
    import datasets
    import mteb

    task = mteb.get_task(name, eval_splits=["test"])
    task.dataset = datasets.DatasetDict({split: datasets.Dataset.from_dict(rows) for split, rows in splits.items()})
    task.data_loaded = True
    found = mteb.evaluate(model, task, cache=None, encode_kwargs={"show_progress_bar": False}, co2_tracker=False)
    return 100 * float(found[0].scores["test"][0]["main_score"])


def accuracy(train: np.ndarray, test: np.ndarray, splits: dict[str, dict[str, list[Any]]]) -> float:
    """Percent right by logistic regression on few rows of each class, the mean over draws."""
    label, gold = (np.array(splits[split]["label"]) for split in ("train", "test"))
    rng, right = np.random.default_rng(0), []
    for _ in range(DRAWS):
        rows = np.concatenate([rng.permutation(np.flatnonzero(label == of))[:SHOTS] for of in range(label.max() + 1)])
        weights = fit(train[rows].astype(np.float64), label[rows], _PENALTY / len(rows))
        right.append(np.mean(predict(test, weights) == gold))
    return 100 * float(np.mean(right))


def main() -> None:
    parser = argparse.ArgumentParser(description="Scores encoders on two of MTEB's tasks, by MTEB and by our programs.")
    parser.add_argument("data", type=Path, help="the folder of the data")
    parser.add_argument("--model", action="append", required=True, help="NAME=MODEL, a model ID or folder; repeatable")
    parser.add_argument("--task", action="append", choices=(BANKING, STS), help="repeatable; default: both")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the JSON file to write")
    args = parser.parse_args()
    tasks, store, rows = read(args.data), EmbeddingStore(), list[dict[str, Any]]()
    for given in args.model:
        name, _, model = given.rpartition("=")
        encoder = Encoder.from_pretrained(model)
        if "query" in encoder.prompts:
            encoder = Encoder.from_pretrained(model, default_prompt_name="query")
        for task, gamma in itertools.product(args.task or tasks, (None, *GAMMAS)):
            splits, sides = tasks[task], ("sentence1", "sentence2")
            texts = [splits["test"][side] for side in sides] if task == STS else [of["text"] for of in splits.values()]
            x = [store.encode(encoder, part) for part in texts]
            if gamma is None:
                whitening = None
            else:
                fitted_on = np.concatenate(x) if task == STS else x[0]
                whitening = Whitening.from_moments(Moments().update(fitted_on), gamma=gamma)
                x = [whitening.transform(part) for part in x]
            if task == BANKING:
                ours = accuracy(*x, splits)
            else:
                ours = 100 * metrics.spearman(metrics.cosine_pairs(*x), np.array(splits["test"]["score"]))
            found = {"encoder": name or model, "task": task, "gamma": gamma, "ours": ours}
            found["mteb"] = theirs(Stored(encoder, whitening), task, tasks[task]) if gamma in (None, 1.0) else None
            rows.append(found)
            say(f"{found}")
        command = "python -m eval.mteb DATA"
        io.write_json(args.output, {"command": command, "versions": versions(), "rows": rows})
    sys.stdout.write(mteb_table({"rows": rows}).text() + "\n")


def mteb_table(result: dict[str, Any]) -> Table:
    """Main scores by MTEB's evaluators and by our programs, with published figures of raw vectors."""
    known = {row.setting["model"]: row.figures for row in published.read("tasks")}
    cells = []
    for row in result["rows"]:
        there = known.get(row["encoder"], {}).get(row["task"], "") if row["gamma"] is None else ""
        vectors = "raw" if row["gamma"] is None else f"whitened, γ = {row['gamma']:g}"
        by_mteb = "" if row["mteb"] is None else f"{row['mteb']:.2f}"
        cells.append([row["task"], row["encoder"], vectors, by_mteb, f"{row['ours']:.2f}", f"{there}"])
    return Table(("task", "encoder", "vectors", "MTEB", "ours", "published"), cells, 3)


VIEWS = {"mteb_table": mteb_table}

if __name__ == "__main__":
    main()
