"""Banking77 and the Chinese STS-B by our programs, and with --check by MTEB's own evaluators, from local files.

`python -m eval.mteb DATA --model NAME=MODEL [--model ...] [--check] -o runs/mteb.jsonl`

DATA has classification/banking77 (train.csv, test.csv: text, category) and sts_zh (STS-B.test.data: two sentences and a
score, split by tabs), or one of them. Encoders with a prompt named query use it on every text.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from eval.beir import TABLES, Rows, program, stored
from eval.classification import fit, predict
from eval.mteb_encoder import MTEBEncoder
from jaxwhiten import Encoder, Moments, Whitening, metrics

BANKING = "Banking77Classification"
STS = "STSB"
GAMMAS = (0.25, 1.0)
# MTEB's: training sets, and rows of each class in them
DRAWS = 10
SHOTS = 8
_PENALTY = 1.0  # of scikit-learn's logistic regression, over all rows
Splits = dict[str, dict[str, list[Any]]]  # the columns of each split, as MTEB names them


def read(folder: Path) -> Iterator[tuple[str, Splits]]:
    """The tasks that are there."""
    if (banking := folder / "classification/banking77").is_dir():
        files = {split: (banking / f"{split}.csv").read_text(encoding="utf-8") for split in ("train", "test")}
        tables = {split: [*csv.DictReader(StringIO(text, newline=""))] for split, text in files.items()}
        names = sorted({row["category"] for row in tables["train"]})
        texts = {split: [row["text"] for row in rows] for split, rows in tables.items()}
        labels = {split: [names.index(row["category"]) for row in rows] for split, rows in tables.items()}
        yield BANKING, {split: {"text": texts[split], "label": labels[split]} for split in tables}
    if (path := folder / "sts_zh/STS-B.test.data").is_file():
        first, second, scores = read_scored(path)
        yield STS, {"test": {"sentence1": first, "sentence2": second, "score": scores}}


def read_scored(file: Path) -> tuple[list[str], list[str], list[float]]:
    """Both sentences of each line, and its score."""
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if line]
    first, second, scores = zip(*lines, strict=True)
    return [*first], [*second], [*map(float, scores)]


def mteb_accuracy(model: MTEBEncoder, name: str, splits: Splits) -> float:
    """MTEB's main score × 100, with its download replaced by the local rows."""
    import datasets
    import mteb

    task = mteb.get_task(name, eval_splits=["test"])
    task.dataset = datasets.DatasetDict({split: datasets.Dataset.from_dict(rows) for split, rows in splits.items()})
    task.data_loaded = True
    results = mteb.evaluate(model, task, cache=None, encode_kwargs={"show_progress_bar": False}, co2_tracker=False)
    return 100 * float(results[0].scores["test"][0]["main_score"])


def accuracy(train: np.ndarray, test: np.ndarray, splits: Splits) -> float:
    """Percent right by logistic regression on few rows of each class, the mean over draws."""
    label, gold = (np.array(splits[split]["label"]) for split in ("train", "test"))
    rng = np.random.default_rng(0)
    right = []
    for _ in range(DRAWS):
        rows = np.concatenate(
            [rng.permutation(np.flatnonzero(label == category))[:SHOTS] for category in range(label.max() + 1)]
        )
        weights = fit(train[rows].astype(np.float64), label[rows], _PENALTY / len(rows))
        right.append(np.mean(predict(test, weights) == gold))
    return 100 * float(np.mean(right))


def tasks(folder: Path, model: str, encoder: Encoder, check: bool) -> Iterator[tuple[str, Rows]]:
    """Raw and whitened vectors; whitenings are fitted on the training rows of Banking77, and on all pairs of STS-B."""
    if "query" in encoder.prompts:
        encoder = Encoder.from_pretrained(
            model, engine=encoder.engine, dtype=encoder.dtype, default_prompt_name="query"
        )
    for task, splits in read(folder):
        if task == STS:
            sides = [splits["test"][f"sentence{n}"] for n in (1, 2)]
        else:
            sides = [split["text"] for split in splits.values()]
        raw = [stored(encoder, side) for side in sides]
        rows = Rows()
        fitted_on = raw[0]
        if task == STS:
            fitted_on = np.concatenate(raw)
        moments = Moments().update(fitted_on)
        for gamma in (None, *GAMMAS):
            name = "raw"
            x = raw
            whitening = None
            if gamma is not None:
                name = f"whitened, γ = {gamma:g}"
                whitening = Whitening.from_moments(moments, gamma=gamma)
                x = [whitening.transform(side) for side in raw]
            if task == STS:
                scores = {
                    "spearman": 100 * metrics.spearman(metrics.cosine_pairs(*x), np.array(splits["test"]["score"]))
                }
            else:
                scores = {"accuracy": accuracy(x[0], x[1], splits)}
            rows.append({"name": name, "scores": scores})
            if check and gamma != GAMMAS[0]:
                rows[-1]["theirs"] = mteb_accuracy(MTEBEncoder(encoder, whitening), task, splits)
        yield task, rows


__all__ = ["TABLES", "tasks"]

if __name__ == "__main__":
    program("eval.mteb", __doc__, tasks)
