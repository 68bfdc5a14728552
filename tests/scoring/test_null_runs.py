"""Verdicts on runs in which nothing is better: how often chance alone is called a gain, and how often a gain is seen.

Each of 400 runs draws the values of systems with one true score, chooses the best as the product does, and asks for
its verdict. A verdict in favor of the chosen system is an error, which 2.5% of the runs may make; one of any difference
between two systems that differ by noise in few items, 5%.
"""

import functools
import itertools

import numpy as np
import pytest

from jaxwhiten import Space
from jaxwhiten.datasets import Examples
from jaxwhiten.metrics import bootstrap
from jaxwhiten.scoring import Evaluation
from jaxwhiten.scoring.evaluation import Form, _measured_pairs, _rows
from jaxwhiten.scoring.measures import of_queries
from jaxwhiten.training import HeldOut, held_out
from jaxwhiten.training.held_out import verdict
from tests.conftest import slow_but

RUNS, RESAMPLES, CHECKPOINTS = 400, 4_000, 10
MOST = 3.0  # percent of null runs
SPACE = Space(model="m", dtype="float32", engine="jax")


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    """All runs of a size have the same resamples anyway, those of seed 0."""
    draws = bootstrap.draws
    cached = functools.cache(lambda n, resamples, seed: list(draws(np.zeros(n), resamples, seed)))
    monkeypatch.setattr(bootstrap, "draws", lambda groups, resamples, seed: cached(len(groups), resamples, seed))
    monkeypatch.setattr(held_out, "RESAMPLES", RESAMPLES)


def chain(rng, systems, n, alike):
    """Noise of systems, each like the one before, as checkpoints are."""
    noise = rng.normal(size=(systems, n))
    for before, after in itertools.pairwise(noise):
        after[:] = alike * before + np.sqrt(1 - alike**2) * after
    return noise


def ramp(systems, gain):
    """The true gain of each system: 0 of the first, rising to `gain`."""
    return gain * np.linspace(0, 1, systems)[:, None]


def reciprocal_ranks(rng, n, systems, alike, gain):
    difficulty = 0.7 + 1.2 * rng.normal(size=n)
    ranks = np.maximum(1, np.floor(np.exp(difficulty - 0.6 * chain(rng, systems, n, alike) - ramp(systems, gain))))
    return np.where(ranks <= 10, 1 / ranks, 0)


def similarities(rng, gold, systems, alike, gain):
    shared, noise = 0.6 * rng.normal(size=len(gold)), 0.5 * chain(rng, systems, len(gold), alike)
    return (1 + ramp(systems, gain)) * gold + shared + noise


def helped(number, n, alike, gain, labeled):
    rng = np.random.default_rng(number)
    gold = rng.normal(size=n) if labeled else None
    systems = CHECKPOINTS + 1
    if labeled:
        before, *checkpoints = similarities(rng, gold, systems, alike, gain)
    else:
        before, *checkpoints = reciprocal_ranks(rng, n, systems, alike, gain)
    rows = held(n, None if gold is None else tuple(gold.astype(np.float32).tolist()))
    best = max(checkpoints, key=rows.score_of)
    figures = rows.compare({"before": before, "after": best, "TF-IDF": np.zeros(n)}, checkpoints)
    return verdict(figures, rows.name, len(checkpoints)).startswith("Training helped")


def held(n, gold):
    columns = {"a": [f"question {row}" for row in range(n)], "b": [f"answer {row}" for row in range(n)]}
    return HeldOut(Examples(columns, None if gold is None else np.array(gold, np.float32)))


def scored(forms, gold, versus=None):
    """The verdict of `evaluate` on similarities of forms."""
    resamples = RESAMPLES if versus is None else RESAMPLES // 2  # one interval needs fewer than several
    return judged(forms, _measured_pairs(forms, gold, np.arange(len(gold)), resamples, 0), "pairs", versus)


def judged(forms, measured, what, versus):
    rows = _rows(forms, measured, 0, versus)
    counts = {what: len(forms[0].found)}
    return Evaluation("", counts, rows, 0, "", "cosine", SPACE, RESAMPLES, 0, versus).verdict


def gains(number, n, alike, gain):
    """Whether one of five whitenings is said to gain."""
    rng = np.random.default_rng(number)
    gold = rng.normal(size=n)
    found = similarities(rng, gold, 6, alike, gain)
    forms = [Form(name, 8, 32, row) for name, row in zip(["raw", *["whitened"] * 5], found, strict=True)]
    return "vectors gain" in scored(forms, gold)


def beats(number, n, positive, gain):
    """Whether another encoder is said to separate two labels better."""
    rng = np.random.default_rng(number)
    labels = (rng.random(n) < positive).astype(float)
    labels[:2] = 0, 1
    found = similarities(rng, labels, 2, 0.0, gain)
    return "Other beats" in scored(two(found), labels, versus=1)


def two(found):
    return [Form(name, 8, 32, row) for name, row in zip(("raw", "other"), found, strict=True)]


def differs(number, n, share, kind):
    """Whether two systems that differ by noise in few items are said to differ."""
    rng = np.random.default_rng(number)
    gold = rng.normal(size=n) if kind == "spearman" else (rng.random(n) < 0.3).astype(float)
    gold[:2] = 0, 1

    def drawn():
        if kind == "hits":
            return 1.0 * (rng.random(n) < 0.8)
        return gold + 0.7 * rng.normal(size=n)

    shared = drawn()
    found = np.stack([np.where(rng.random(n) < share, drawn(), shared) for _ in range(2)])
    if kind != "hits":
        return "do not differ" not in scored(two(found), gold, versus=1)
    measured = of_queries({"ndcg_at_10": found}, RESAMPLES // 2)
    return "do not differ" not in judged(two(found), measured, "queries", 1)


SPARSE = [("hits", 300, 0.02), ("hits", 300, 0.05), ("hits", 50, 0.1)]
OTHERS = [(kind, *case) for kind in ("spearman", "precision") for case in ((50, 0.2), (300, 0.02))]


@pytest.mark.parametrize(("kind", "n", "share"), slow_but([*SPARSE, *OTHERS], SPARSE[-1]))
def test_noise_in_few_items_is_no_difference(kind, n, share):
    assert rate(differs, n, share, kind, runs=200) <= 5


def rate(says, *case, runs=RUNS):
    return 100 * np.mean([says(number, *case) for number in range(runs)])


NULL = {
    "training-mrr": (helped, 60, 0.0, 0.0, False),
    "training-spearman": (helped, 40, 0.0, 0.0, True),
    "whitenings": (gains, 60, 0.5, 0.0),
    "average-precision": (beats, 100, 0.3, 0.0),
}
REAL = {  # with the least percentage of runs that see the gain
    "training-mrr": ((helped, 100, 0.9, 0.4, False), 80),
    "training-spearman": ((helped, 100, 0.9, 0.5, True), 75),
    "whitenings": ((gains, 100, 0.9, 0.4), 80),
    "average-precision": ((beats, 150, 0.3, 0.6), 70),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", NULL.values(), ids=NULL)
def test_chance_is_seldom_called_a_gain(case):
    assert rate(*case) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize(("case", "least"), REAL.values(), ids=REAL)
def test_a_gain_is_seen(case, least):
    assert rate(*case, runs=100) >= least
