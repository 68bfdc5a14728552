"""Whether new vectors still resemble those that a whitening or a code was fitted on, and how often this is right.

`python -m eval.drift banking77.npy wikipedia.npy … -o docs/runs/drift.jsonl`

Each file has the vectors of one corpus, as `jaxwhiten encode` writes them, in any order. A trial fits on some rows of a
corpus and judges as many others: of the same corpus, for each corpus of 8,000 rows or more, or of another one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eval.runs import Record, Run, header
from jaxwhiten import SpectrumCode, Whitening
from jaxwhiten.errors import InputError
from jaxwhiten.whitening.whitening import unseen_variances

VERDICTS = ("fine", "refit soon", "refit now")
LEAST = 50  # new rows
_GROUPS = 20  # of new rows, for the jackknife
_QUANTILE = 2.09  # 97.5 % of Student's t with 19 degrees of freedom
_ROUNDING = 1e-12  # of a variance, relative to the mean square
_SAMPLES = 512  # of a normal distribution, for the loss expected under it
_NAMES = ("mean shift", "divergence of the axes", "variance outside the axes", "code distortion")
SIZES = (100, 200, 300, 500, 1000, 2000, 4000)  # rows of the fit, and rows judged
PAIRS = "different corpora"
FITS: dict[str, Callable[[np.ndarray], Whitening | SpectrumCode]] = {
    "code of 48 bytes": lambda x: SpectrumCode(bytes=48).fit(x),
    "whitening to 128": lambda x: Whitening(n_components=min(128, len(x) - 1), gamma=0.0).fit(x),
    "documents": lambda x: Whitening(gamma=0.0).fit(x),
}


class Measure(NamedTuple):
    """One measure of drift for the new vectors, what fresh vectors of the fit's kind would have, and its verdict."""

    name: str
    value: float
    low: float  # ends of the 95 % interval
    high: float
    before: float
    verdict: str


def verdict(measures: list[Measure]) -> str:
    """The worst of the measures' verdicts: "fine", "refit soon" or "refit now"."""
    return max((measure.verdict for measure in measures), key=VERDICTS.index)


def drift(fitted: Whitening | SpectrumCode, new: np.ndarray) -> list[Measure]:
    """Compares new vectors [n, d] with a fit.

    There are four measures. Mean shift: the squared shift of the mean over the variance. Divergence of the axes: the
    mean over the kept axes of the Kullback-Leibler divergence, in nats, of the new normal distribution from the old
    one. Variance outside the axes: its share of the variance. Loss of the code: the share of the variance along its
    axes that it is expected to lose.

    Any fit describes its own rows better than others. New vectors are therefore compared with the variances to expect
    of further rows (`unseen_variances`), and the noise of both samples is subtracted. A limit counts as passed if the
    lower end of the 95 % interval passes it: a jackknife over groups of the new vectors, widened for the rows of the
    fit. The limits are rules of thumb; for the loss, 10 % above its expectation is "refit soon" and 50 % is "refit
    now".

    Raises:
      InputError: There are too few new vectors, or they or the rows of the fit are all equal.

    References:
      Cover, Thomas 2006, "Elements of Information Theory", chapter 8 (divergence of normal distributions).
      Efron, Tibshirani 1993, "An Introduction to the Bootstrap", chapter 11 (jackknife).
    """
    code = fitted if isinstance(fitted, SpectrumCode) else None
    whitening = code.axes if code is not None else fitted
    assert isinstance(whitening, Whitening)
    unseen = unseen_variances(whitening)
    n = whitening.n_samples_seen_
    m = len(new)
    k = min(whitening.n_components or len(unseen), whitening.rank_)
    if k < 1 or n < 2:
        raise InputError("All vectors of the fit are identical, so new vectors cannot be compared with them.")
    if m < LEAST:
        raise InputError(f"{m} new vectors are too few to judge drift: provide at least {LEAST}.")
    some = slice(min(k, n // 2))  # axes of so small a variance that n rows do not determine it are left out

    def measured(m: float, means: np.ndarray, variances: np.ndarray) -> list[float]:
        """The measures of m rows with these means and variances along the axes."""
        squares = means**2 - unseen / n - variances / m  # of the shift alone
        ratios = (1 + 1 / m) * np.maximum(variances[some], np.finfo(float).tiny) / unseen[some]
        divergences = (ratios - 1 - np.log(ratios) + squares[some] / unseen[some] - 1 / m) / 2
        measures = [squares.sum() / unseen.sum(), np.mean(divergences), 1 - variances[:k].sum() / variances.sum()]
        return measures + ([] if code is None else [expected_loss(code, means[some], variances[some])])

    z = (new.astype(np.float64) - whitening.mean_) @ whitening.components_
    parts = [z[group::_GROUPS] for group in range(_GROUPS)]
    groups = np.array([[np.full(z.shape[1], len(part)), part.sum(axis=0), (part**2).sum(axis=0)] for part in parts])
    every = groups.sum(axis=0)
    counts, sums, squares = np.moveaxis([every, *(every - groups)], 1, 0)  # of all rows, and without each group
    means = sums / counts
    with np.errstate(all="ignore"):
        variances = squares / counts - means**2
        variances[variances < _ROUNDING * squares / counts] = 0
        values, *others = np.array(list(map(measured, counts[:, 0], means, variances)))
        before = [0.0, 0.0, *map(float, measured(np.inf, 0 * unseen, (1 + 1 / n) * unseen)[2:])]
    errors = _QUANTILE * np.std(others, axis=0) * np.sqrt((_GROUPS - 1) * (1 + m / n))
    if not np.isfinite([values, errors, before]).all():
        raise InputError("Nearly all new vectors are identical, so their variances cannot be estimated.")
    limits = [(0.05, 0.25), (0.1, 0.5), (before[2] + 0.05, before[2] + 0.15)]
    unsure = 0.2 * len(unseen) / n  # the variances of unseen rows are themselves estimates
    limits += [((1.1 + unsure) * x, (1.5 + unsure) * x) for x in before[3:]]
    return [
        Measure(name, x, x - error, x + error, past, VERDICTS[(x - error > soon) + (x - error > now)])
        for name, x, error, past, (soon, now) in zip(
            _NAMES, values.tolist(), errors.tolist(), before, limits, strict=False
        )
    ]


def expected_loss(code: SpectrumCode, means: np.ndarray, variances: np.ndarray) -> float:
    """The share of the variance along the code's axes that it is expected to lose, if vectors are normal.

    `means`, relative to the fitted mean, and `variances` are of vectors along the first axes of the fit.
    """
    some = slice(min(code.affine.outputs, len(means)))
    axes = code.axes.components_[:, : code.affine.outputs]
    x = np.zeros((_SAMPLES, axes.shape[1]))
    normal = np.random.default_rng(0).standard_normal(x.shape)
    x[:, some] = means[some] + np.sqrt(variances[some]) * normal[:, some]
    coded = code.transform((x @ axes.T + code.axes.mean_).astype(np.float32))
    z = (coded - code.axes.mean_) @ axes
    return float((((x - z) ** 2)[:, some]).sum() / (x**2).sum())


def trials(vectors: dict[str, np.ndarray], kind: str, count: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Sizes, and rows to fit on and to judge: of the corpus named `kind`, or for `PAIRS` of two different ones."""
    rng = np.random.default_rng(0)
    for trial in range(count):
        size = SIZES[trial % len(SIZES)]
        pair = rng.choice(list(vectors), 2, replace=False) if kind == PAIRS else [kind, kind]
        old, new = (rng.permutation(len(vectors[name])) for name in pair)
        yield (
            size,
            vectors[pair[0]][old[:size]],
            vectors[pair[1]][new[:size] if kind == PAIRS else old[size : 2 * size]],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the verdicts on new vectors.")
    parser.add_argument("vectors", nargs="+", type=Path, help=".npy files, one per corpus, of at least 4,000 rows")
    parser.add_argument("--trials", type=int, default=100, help="of each kind; default: 100")
    parser.add_argument("-o", "--output", required=True, help="the .jsonl file to write")
    args = parser.parse_args()
    vectors = {path.stem: np.load(path) for path in args.vectors}
    rows = list[Record]()
    for kind in [*(name for name, x in vectors.items() if len(x) >= 2 * SIZES[-1]), PAIRS]:
        for fit, fitted in FITS.items():
            verdicts = [
                (size, verdict(drift(fitted(old), new))) for size, old, new in trials(vectors, kind, args.trials)
            ]
            counts = Counter(judged for _, judged in verdicts)
            wrong = sorted(size for size, judged in verdicts if (judged == "fine") == (kind == PAIRS))
            rows.append(Record({"rows": kind, "fit": fit, **{v: counts[v] for v in VERDICTS}, "wrong at": wrong}))
            print(rows[-1], flush=True)
    corpora = {name: len(x) for name, x in vectors.items()}
    Run(header("eval.drift", {"trials": args.trials}, complete=True, sizes=SIZES, corpora=corpora), rows).save(
        args.output
    )


if __name__ == "__main__":
    main()
