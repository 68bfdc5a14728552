"""Classes of sentence pairs by logistic regression on their vectors: paraphrases (MRPC) and entailment (SNLI).

Features are |u − v| and u × v of vectors of unit length, as in SentEval (Conneau, Kiela 2018), scaled to the training
rows' standard deviation; the penalty is chosen on every fifth training row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import jaxwhiten
from eval.data import load_mrpc, load_nli

TASKS = ("MRPC", "SNLI")
PENALTIES = (1e-3, 1e-2, 1e-1)  # factors of half the squared weights, added to the mean loss
HELD_OUT = 5
PROTOCOL = "logistic regression on |u − v| and u × v, both sides coded; MRPC trained on its train split, SNLI on dev"


@dataclass(frozen=True)
class PairTask:
    """Pairs as rows of an array of unique sentences, with their classes; the first `train` pairs are for training."""

    name: str
    left: np.ndarray
    right: np.ndarray
    label: np.ndarray
    train: int


def load_tasks(names: Sequence[str], data_dir: str | None) -> tuple[list[str], tuple[PairTask, ...]]:
    """Unique sentences of all tasks, and each task as rows of them. SNLI is trained on its dev split."""
    number: dict[str, int] = {}

    def rows(texts: Sequence[str]) -> list[int]:
        return [number.setdefault(text, len(number)) for text in texts]

    tasks = []
    for name in names:
        if name == "MRPC":
            splits = load_mrpc(data_dir)
            parts = [(p.sentence1, p.sentence2, p.score) for p in (splits["train"], splits["test"])]
        else:
            nli = [load_nli(data_dir, sources="snli_dev_test", splits=split) for split in ("dev", "test")]
            parts = [(p.premise, p.hypothesis, p.label) for p in nli]
        sides = [(rows(first), rows(second), label) for first, second, label in parts]
        left, right, label = (np.concatenate(side) for side in zip(*sides, strict=True))
        tasks.append(PairTask(name, left, right, label.astype(np.int64), len(parts[0][2])))
    return list(number), tuple(tasks)


def correct(x: np.ndarray, task: PairTask) -> np.ndarray:
    """Whether each test pair gets the right class, 0 or 1, from vectors of the unique sentences."""
    u, v = (jaxwhiten.normalize(x[side]).astype(np.float64) for side in (task.left, task.right))
    features = np.concatenate([np.abs(u - v), u * v], axis=1)
    n = task.train
    spread = features[:n].std(axis=0)
    features = (features - features[:n].mean(axis=0)) / np.where(spread > 0, spread, 1)
    is_held_out = np.arange(n) % HELD_OUT == 0
    training = np.flatnonzero(~is_held_out)
    held_out = np.flatnonzero(is_held_out)

    def accuracy(penalty: float) -> float:
        weights = fit(features[training], task.label[training], penalty)
        return float((predict(features[held_out], weights) == task.label[held_out]).mean())

    weights = fit(features[:n], task.label[:n], max(PENALTIES, key=accuracy))
    return (predict(features[n:], weights) == task.label[n:]).astype(np.float64)


def fit(x: np.ndarray, label: np.ndarray, penalty: float) -> np.ndarray:
    """Weights [d + 1, classes] of a multinomial logistic regression; the last row holds the intercepts."""
    n, d = x.shape
    classes = int(label.max()) + 1
    hot = np.eye(classes)[label]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(d + 1, classes)
        z = x @ w[:-1] + w[-1]
        value = (logsumexp(z, axis=1) - z[np.arange(n), label]).mean() + penalty / 2 * (w[:-1] ** 2).sum()
        error = (softmax(z, axis=1) - hot) / n
        return value, np.concatenate([x.T @ error + penalty * w[:-1], error.sum(axis=0)[None]]).ravel()

    result = minimize(loss, np.zeros((d + 1) * classes), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return result.x.reshape(d + 1, classes)


def predict(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The most likely class of each row."""
    return (x @ weights[:-1] + weights[-1]).argmax(axis=1)
