"""Tasks that need more than words, made from the available STS tasks and NLI rows, for `eval.sts`.

`swapped` contains the pairs that people score 4 or more twice: unchanged, and with two words of the second sentence
swapped. Models without word order cannot distinguish the two and score 0. PAWS (Zhang et al. 2019) swaps words, too,
but lets people judge the result; here every swap counts as a change of meaning, which is not always true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from eval.data import STS_TASKS, load_nli, load_sts
from eval.measure import sample_rows
from jaxwhiten.datasets import Pairs, STSTask

_PAIRS = 4000  # of a task, at most, spread evenly over those there are
_SAME = 4.0  # pairs of at least this human score mean the same
_WORD = re.compile(r"\w+")


def load_task(name: str, data_dir: str | None) -> STSTask:
    """One of `PROBES`, or a task of `load_sts`."""
    if name in PROBES:
        return load_probe(name, data_dir)
    return load_sts(name, data_dir)


def load_probe(name: str, data_dir: str | None) -> STSTask:
    """One of `PROBES`; every pair is a test pair."""
    return STSTask(name, {"test": PROBES[name](data_dir)})


def overlap(a: str, b: str) -> float:
    """The share of the words of both texts that occur in both."""
    first, second = (set(_WORD.findall(text.lower())) for text in (a, b))
    return len(first & second) / max(1, len(first | second))


def swapped(text: str, rng: np.random.Generator) -> str | None:
    """The text with two of its longer words swapped; None if it has no two such words."""
    words = [match for match in _WORD.finditer(text) if len(match[0]) > 3]
    first = {word[0].lower(): word for word in words}
    if len(first) < 2:
        return None
    chosen = rng.choice(len(first), 2, replace=False)
    a, b = sorted((list(first.values())[i] for i in chosen), key=re.Match.start)
    return text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]


def _sts(data_dir: str | None) -> Pairs:
    """The test pairs of the seven tasks; a task is a subset, as their scales differ."""
    tests = [load_sts(name, data_dir).splits["test"] for name in STS_TASKS]
    first, second = ([text for test in tests for text in getattr(test, side)] for side in ("sentence1", "sentence2"))
    subsets = [name for name, test in zip(STS_TASKS, tests, strict=True) for _ in range(len(test))]
    return Pairs(first, second, np.concatenate([test.score for test in tests]), subsets)


def _chosen(pairs: Pairs, rows: np.ndarray) -> Pairs:
    rows = rows[sample_rows(len(rows), _PAIRS)]
    texts = ([side[i] for i in rows] for side in (pairs.sentence1, pairs.sentence2))
    return Pairs(*texts, pairs.score[rows], [pairs.subset[i] for i in rows])


def _overlapping(data_dir: str | None, quarter: Callable[[np.ndarray], np.ndarray]) -> Pairs:
    """For each task the quarter of the pairs with the fewest, or the most, words in common."""
    pairs = _sts(data_dir)
    shared = np.array([overlap(a, b) for a, b in zip(pairs.sentence1, pairs.sentence2, strict=True)])
    subsets = np.array(pairs.subset)
    parts = [rows[quarter(np.argsort(shared[rows], kind="stable"))] for rows in _rows_of(subsets)]
    return _chosen(pairs, np.sort(np.concatenate(parts)))


def _rows_of(subsets: np.ndarray) -> Iterator[np.ndarray]:
    for name in dict.fromkeys(subsets.tolist()):
        yield np.flatnonzero(subsets == name)


def _swapped(data_dir: str | None) -> Pairs:
    pairs = _sts(data_dir)
    rng = np.random.default_rng(0)
    changed = {
        i: text
        for i in np.flatnonzero(pairs.score >= _SAME)
        if pairs.sentence1[i] != pairs.sentence2[i] and (text := swapped(pairs.sentence2[i], rng))
    }
    rows = np.array(list(changed))[sample_rows(len(changed), _PAIRS // 2)]
    first = [pairs.sentence1[i] for i in rows]
    second = [*(pairs.sentence2[i] for i in rows), *(changed[i] for i in rows)]
    return Pairs(first * 2, second, np.repeat([1.0, 0.0], len(rows)), [""] * (2 * len(rows)))


def _contradiction(data_dir: str | None) -> Pairs:
    """Premise and hypothesis: entailed (1) or contradicted (0)."""
    nli = load_nli(data_dir, two_way="keep")
    pairs = Pairs(nli.premise, nli.hypothesis, (nli.label == 0).astype(np.float64), [""] * len(nli))
    return _chosen(pairs, np.flatnonzero((nli.label == 0) | (nli.label == 2)))


PROBES: Mapping[str, Callable[[str | None], Pairs]] = {
    "low-overlap": lambda data_dir: _overlapping(data_dir, lambda order: order[: len(order) // 4]),
    "high-overlap": lambda data_dir: _overlapping(data_dir, lambda order: order[-(len(order) // 4) :]),
    "swapped": _swapped,
    "contradiction": _contradiction,
}
