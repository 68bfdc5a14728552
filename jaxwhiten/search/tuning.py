"""Choosing γ and the code of an index without labels: by how well documents are found again by some of their words.

Pseudo-queries are easier than real ones and ask for other things, so that a small lead in them means nothing: what the
kind of encoder asks for is only given up for what is better beyond chance, and γ for one a step away (docs/codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxwhiten.codes import CODES, SpectrumCode
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import Gold, reciprocal_ranks
from jaxwhiten.metrics.bootstrap import bootstrap_mean
from jaxwhiten.search.base import Index
from jaxwhiten.search.coding import best_code
from jaxwhiten.search.registry import build_index
from jaxwhiten.whitening import GRID, Whitening

DROPPED = 0.3  # share of a document's words that its pseudo-query leaves out
_FEWEST_WORDS = 3
_FIRST = 10
_STEP = 0.25


class Trial(NamedTuple):
    """One code of the documents, and how well their pseudo-queries find them.

    Attributes:
      code: Its name.
      bytes: Per document.
      gamma: Power of the whitening in front of it.
      cost: Difference of its MRR@10 to that of float32 vectors, in points; below 0 is worse.
      low: Lower end of the 95 % interval of that, paired over the pseudo-queries.
      high: Upper end.
    """

    code: str
    bytes: int
    gamma: float
    cost: float
    low: float
    high: float


class CodeTuning(NamedTuple):
    """What `tune_codes` found.

    Attributes:
      best: The trial that was chosen.
      trials: All of them: `spectrum` at every γ, then the other codes at the γ chosen.
      mrr: MRR@10 of float32 vectors on the pseudo-queries, in points.
      usual: The γ that the spectrum of the fit asks for.
      queries: Number of pseudo-queries.
      left_out: Why a code could not be had, by its name.
    """

    best: Trial
    trials: tuple[Trial, ...]
    mrr: float
    usual: float
    queries: int
    left_out: dict[str, str]


def pseudo_queries(
    texts: Sequence[str], wanted: int = 1000, *, dropped: float = DROPPED, seed: int = 0
) -> tuple[list[str], Int[np.ndarray, " n"]]:
    """Documents without some of their words, each to be answered by the document it was made of.

    Args:
      texts: The documents; those of fewer than three words are passed over.
      wanted: How many at most, of documents spread evenly.
      dropped: Share of the words left out; at least one is, the others keep their order.
      seed: Of the choice of words.

    Returns:
      The pseudo-queries, and the number of the document of each.

    Raises:
      InputError: No document has three words.
    """
    words = [text.split() for text in texts]
    long = np.flatnonzero([len(found) >= _FEWEST_WORDS for found in words])
    if not len(long):
        raise InputError(f"No document has {_FEWEST_WORDS} words, of which a pseudo-query could be made.")
    rng = np.random.default_rng(seed)
    sources = long[np.linspace(0, len(long) - 1, min(wanted, len(long))).astype(np.int64)]
    queries = []
    for source in sources:
        n = len(words[source])
        kept = np.sort(rng.permutation(n)[max(1, round(dropped * n)) :])
        queries.append(" ".join(words[source][i] for i in kept))
    return queries, sources


def tune_codes(
    documents: Float[np.ndarray, "n d"],
    queries: Float[np.ndarray, "q d"],
    sources: Int[np.ndarray, " q"],
    whitening: Whitening,
    size: int,
    *,
    codes: Sequence[str] = (),
    gammas: Sequence[int | float] = GRID,
    seed: int = 0,
) -> CodeTuning:
    """Chooses γ and the code of `size` bytes by pseudo-queries, and says what they cost against float32.

    γ is chosen for the spectrum code, then the code at that γ. The γ that the spectrum of the fit asks for, and the
    code that `codes="auto"` takes, are kept unless others find more, by a paired 95 % interval that leaves out 0. A
    γ more than 0.25 from the usual one is tried and told, but not chosen.

    Args:
      documents: Raw vectors, among which is searched.
      queries: Raw vectors of `pseudo_queries`.
      sources: The document of each.
      whitening: What codes are fitted from; of the documents, or of other text. Its γ is not used.
      size: Bytes per document.
      codes: Further codes to try, by the names that `build_index` takes.
      gammas: Powers of the scaling to try, 0 to 1, beside the usual one.
      seed: Of the resamples.

    Returns:
      The choice and all trials.

    Raises:
      InputError: No spectrum code of so many bytes, a γ out of range, or arrays that do not fit.
      MissingDependencyError: FAISS is not installed.
    """
    gold, asked = Gold.from_pairs(np.arange(len(sources)), sources, len(queries)), min(_FIRST, len(documents))

    def ranks(index: Index) -> Float[np.ndarray, " q"]:
        return 100 * reciprocal_ranks(index.search(queries, asked)[1], gold, _FIRST)

    def trial(name: str, gamma: float) -> Trial:
        if name in CODES and name != "spectrum":  # of raw vectors, as sentence-transformers has them
            index = build_index(documents, codes=name)
        else:
            index = build_index(documents, whitening=whitening.with_params(gamma=gamma), codes=name, bytes=size)
        used = 0 if index.codes is None else index.codes["bytes"]
        if used > size:
            raise InputError(f"it has {used} bytes")
        found = per_query[name, gamma] = ranks(index)
        return Trial(name, used, gamma, *_interval(found - raw, seed))

    def chosen(usual: Trial, trials: Sequence[Trial]) -> Trial:
        """The usual one, or the best of those that are better beyond chance."""
        own = per_query[usual.code, usual.gamma]
        better = [t for t in trials if _interval(per_query[t.code, t.gamma] - own, seed)[1] > 0]
        return max(better, key=lambda t: t.cost, default=usual)

    raw = ranks(build_index(documents))
    per_query: dict[tuple[str, float], np.ndarray] = {}
    usual = SpectrumCode.usual_gamma(whitening)
    by_gamma = {gamma: trial("spectrum", gamma) for gamma in sorted({usual, *map(float, gammas)})}
    first = chosen(by_gamma[usual], [t for gamma, t in by_gamma.items() if abs(gamma - usual) <= _STEP])
    found, left_out = {"spectrum": first}, {}
    for name in dict.fromkeys(codes):
        if name != "spectrum":
            try:
                found[name] = trial(name, first.gamma)
            except InputError as error:
                left_out[name] = str(error)
    by_table, _ = best_code(size, len(documents), whitening, list(found))
    best = chosen(found[by_table], list(found.values()))
    others = [t for name, t in found.items() if name != "spectrum"]
    return CodeTuning(best, (*by_gamma.values(), *others), float(raw.mean()), usual, len(queries), left_out)


def _interval(differences: Float[np.ndarray, " q"], seed: int) -> tuple[float, float, float]:
    """The mean and its interval."""
    return float(differences.mean()), *bootstrap_mean(differences, 2000, seed)
