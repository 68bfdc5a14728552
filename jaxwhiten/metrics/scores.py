"""Similarities of vectors, and scores: Spearman with ties, two labels, retrieval measures. Arrays in, numbers out.

Similarities are named as in sentence-transformers; distances are negated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxwhiten.arrays import check_finite, comparable, normalize
from jaxwhiten.errors import InputError, check_counts, check_integer, check_name
from jaxwhiten.types import Float, Float32, Int, Real, RowsLike, Shaped

UNDEFINED = "undefined: all cosines are equal"  # the text of a correlation that is NaN


class Gold(NamedTuple):
    """The relevant ids of every query, in compressed sparse rows: `ids[indptr[q]:indptr[q + 1]]` belong to query q.

    >>> Gold.from_lists([[2], [0, 1]]).indptr
    array([0, 1, 3])
    """

    indptr: Int[np.ndarray, " q+1"]
    ids: Int[np.ndarray, " m"]
    grades: Real[np.ndarray, " m"] | None = None  # how relevant each id is, above 0; None if all are 1

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[int] | np.ndarray]) -> Gold:
        """From one sequence of ids per query; a query with an empty sequence has no gold."""
        arrays = [np.asarray(ids, dtype=np.int64).reshape(-1) for ids in lists]
        return cls(np.cumsum([0, *map(len, arrays)]), np.concatenate([np.zeros(0, np.int64), *arrays]))

    @classmethod
    def from_pairs(
        cls,
        queries: Int[np.ndarray, " m"],
        ids: Int[np.ndarray, " m"],
        n_queries: int,
        grades: Real[np.ndarray, " m"] | None = None,
    ) -> Gold:
        """From rows (query number, relevant id, and its grade if they have one), in any order."""
        order = np.argsort(queries, kind="stable")
        sizes = np.bincount(queries, minlength=n_queries)
        if len(sizes) > n_queries:
            raise InputError(f"Query number {int(queries.max())} in the gold, but there are {n_queries} queries.")
        grades = None if grades is None else grades[order]
        return cls(np.concatenate([[0], np.cumsum(sizes)]), np.asarray(ids)[order].astype(np.int64), grades)

    def of(self, queries: Int[np.ndarray, " r"]) -> Gold:
        """The relevant ids of some queries, by their numbers."""
        parts = [np.arange(*self.indptr[query : query + 2]) for query in queries]
        at = np.concatenate([np.zeros(0, np.int64), *parts])
        grades = None if self.grades is None else self.grades[at]
        return Gold(np.cumsum([0, *map(len, parts)]), self.ids[at], grades)


def spearman(x: Real[np.ndarray, " n"], y: Real[np.ndarray, " n"]) -> float:
    """Spearman's rank correlation; ties get the average of their ranks.

    NaN, without a warning, if it is undefined: fewer than two items, or x or y constant.

    >>> spearman(np.array([1, 2, 3]), np.array([1, 8, 9]))
    1.0
    """
    for name, values in (("x", x), ("y", y)):
        check_finite(values[:, None], what=name)
    if len(x) < 2:
        return math.nan
    rx, ry = _centered_ranks(x), _centered_ranks(y)
    scale = math.sqrt(float(rx @ rx) * float(ry @ ry))
    return float(rx @ ry) / scale if scale > 0 else math.nan


def _centered_ranks(values: Real[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    from scipy.stats import rankdata  # half a second that only scores need

    # The average ranks of n items always have the mean (n + 1) / 2, which is exact in float64.
    ranks: np.ndarray = rankdata(values).astype(np.float64) - (len(values) + 1) / 2  # SciPy 1.18 ranks float32 so
    return ranks


def spearman_parts(x: Real[np.ndarray, " n"], y: Real[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """What each item adds to Spearman's correlation, which is their mean: its influence. NaN if it is undefined.

    >>> spearman_parts(np.array([1, 2, 3]), np.array([1, 8, 9]))
    array([1., 1., 1.])

    References:
      Devlin, Gnanadesikan & Kettenring 1975, "Robust estimation and outlier detection with correlation coefficients".
    """
    with np.errstate(invalid="ignore"):
        rx, ry = (ranks / ranks.std() for ranks in map(_centered_ranks, (x, y)))
        influence: np.ndarray = rx * ry - np.mean(rx * ry) * (rx**2 + ry**2 - 2) / 2
    return influence


def precision_parts(similarity: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """As `spearman_parts`, of the average precision of `binary_scores`: what it changes with the weight of each item.

    >>> precision_parts(np.array([0.9, 0.2, 0.8]), np.array([1, 1, 0])).round(2)
    array([1.25, 0.75, 0.5 ])
    """
    positive = labels > labels.min()
    order, hits = np.sort(similarity), np.sort(similarity[positive])
    n, total = len(order), len(hits)
    above, right = n - np.searchsorted(order, hits), total - np.searchsorted(hits, hits)  # at least as similar
    precision = right / above
    of_more = np.cumsum([0, *-precision / above])  # of one more item above each hit, summed over the hits
    of_hits = np.cumsum([0, *1 / above])
    below = np.searchsorted(hits, similarity, side="right")
    own = precision[below - 1] + of_hits[below] - precision.mean()
    influence: np.ndarray = precision.mean() + n / total * (of_more[below] + np.where(positive, own, 0))
    return influence


def binary_scores(
    similarity: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"], counts: Real[np.ndarray, "n r"]
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Average precision and the area under the ROC curve of resamples that have each pair `counts` times.

    Pairs of equal similarity share their place.

    >>> precision, area = binary_scores(np.array([0.9, 0.2]), np.array([1, 0]), np.ones((2, 1)))
    >>> precision, area
    (array([1.]), array([1.]))

    References:
      Fawcett 2006, "An introduction to ROC analysis", section 7, on the area and its ties.
    """
    order = np.argsort(-similarity, kind="stable")
    starts = np.flatnonzero(np.diff(similarity[order], prepend=np.inf))
    counts = counts[order].astype(np.float64)
    of_two = labels[order, None] > labels.min()
    positive, every = (np.add.reduceat(x, starts) for x in (counts * of_two, counts))
    true_positives = positive.cumsum(axis=0)
    totals = every.cumsum(axis=0)
    negative = every - positive
    total = true_positives[-1]
    below = (totals - true_positives)[-1] - (totals - true_positives) + negative / 2
    precision = (positive * true_positives / np.maximum(totals, 1)).sum(axis=0) / total
    return precision, (positive * below).sum(axis=0) / (total * (totals[-1] - total))


def cosine_pairs(a: Shaped[np.ndarray, "n _d"], b: Shaped[np.ndarray, "n _e"]) -> Float[np.ndarray, " n"]:
    """Cosine of each row of `a` with the same row of `b`, in the arrays' precision; 0 for a zero vector.

    >>> cosine_pairs(np.eye(2), np.array([[2.0, 0.0], [1.0, 0.0]]))
    array([1., 0.])
    """
    return np.einsum("nd,nd->n", *map(normalize, comparable(a, b)))


Rows = Float[np.ndarray, "n d"]

_ALL: dict[str, Callable[[Rows, Rows], np.ndarray]] = {
    "cosine": lambda a, b: normalize(a) @ normalize(b).T,
    "dot": lambda a, b: a @ b.T,
    "euclidean": lambda a, b: -_distances(a, b, "euclidean"),
    "manhattan": lambda a, b: -_distances(a, b, "cityblock"),
}
_PAIRWISE: dict[str, Callable[[Rows, Rows], np.ndarray]] = {
    "cosine": lambda a, b: np.einsum("nd,nd->n", normalize(a), normalize(b)),
    "dot": lambda a, b: np.einsum("nd,nd->n", a, b),
    "euclidean": lambda a, b: -np.linalg.norm(a - b, axis=1),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=1),
}
SIMILARITIES = tuple(_ALL)


def check_similarity(name: str) -> str:
    """Returns the name of a similarity; InputError if it is unknown."""
    check_name("similarity", name, SIMILARITIES)
    return name


def similarity(a: RowsLike, b: RowsLike, name: str = "cosine") -> Float32[np.ndarray, "n m"]:
    """Similarities of all rows of `a` with all rows of `b`, in any container; a single vector is one row.

    Codes see `comparable`.

    >>> similarity(np.eye(2), np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return _ALL[check_similarity(name)](*_rows(a, b)).astype(np.float32)


def similarity_pairwise(a: RowsLike, b: RowsLike, name: str = "cosine") -> Float32[np.ndarray, " n"]:
    """Similarities of each row of `a` with the same row of `b`.

    >>> similarity_pairwise(np.eye(2), np.eye(2), "dot").tolist()
    [1.0, 1.0]
    """
    first, second = _rows(a, b)
    if len(first) != len(second):
        raise InputError(f"Expected as many vectors on both sides, got {len(first)} and {len(second)}.")
    return _PAIRWISE[check_similarity(name)](first, second).astype(np.float32)


def _distances(a: np.ndarray, b: np.ndarray, metric: str) -> np.ndarray:
    from scipy.spatial.distance import cdist  # imported here: it takes 0.25 s, and only distances need it

    return cdist(a, b, metric)


def _rows(a: RowsLike, b: RowsLike) -> tuple[np.ndarray, np.ndarray]:
    first, second = (np.atleast_2d(np.asarray(x, np.float32)) for x in comparable(a, b))
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise InputError(f"Arrays of shapes {np.shape(a)} and {np.shape(b)} do not have the same number of columns.")
    return first, second


GoldLike = Gold | Sequence[Sequence[int] | np.ndarray]


def _gains(ranked: np.ndarray, gold: GoldLike, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The grade of each of the first k results, 0 if it is not relevant, in a row for each query with gold.

    And the row and the grade of every relevant id, by rising row.
    """
    if not isinstance(gold, Gold):
        gold = Gold.from_lists(gold)
    check_integer("k", k, 1)
    n = len(ranked)
    check_counts("rows of results", n, "queries of the gold", len(gold.indptr) - 1)
    top = ranked[:, :k]
    ordered = np.sort(top, axis=1)
    repeated = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if repeated.any():
        raise InputError(f"Row {int(np.argmax(repeated))} of the results contains an id twice.")
    from scipy.sparse import csr_matrix

    missing = int(max(gold.ids.max(initial=0), top.max(initial=0))) + 1  # in place of ids below 0, which none has
    grades = np.ones(len(gold.ids)) if gold.grades is None else gold.grades
    ids = np.where(gold.ids < 0, missing, gold.ids)
    relevant = csr_matrix((grades, ids, gold.indptr), (n, missing + 1), np.float64, copy=True)
    relevant.sum_duplicates()
    if gold.grades is None:
        relevant.data[:] = 1
    used = np.flatnonzero(np.diff(relevant.indptr))
    gains = relevant[used[:, None], np.maximum(top[used], 0)].toarray() * (top[used] >= 0)
    return gains, np.repeat(np.arange(len(used)), np.diff(relevant.indptr)[used]), relevant.data


def reciprocal_ranks(ranked: Int[np.ndarray, "q m"], gold: GoldLike, k: int = 10) -> Float[np.ndarray, " g"]:
    """1 / rank of the first relevant result among the first k, 0 if there is none; their mean is MRR@k.

    >>> reciprocal_ranks(np.array([[7, 3], [5, 6]]), [[3], [9]])
    array([0.5, 0. ])

    Args:
      ranked: Ids returned for each query, best first, distinct within a row; −1 for a missing result.
      gold: The relevant ids of each query.
      k: The number of results that count.

    Returns:
      One number per query with relevant ids.
    """
    gains, *_ = _gains(ranked, gold, k)
    ranks: np.ndarray = ((gains > 0) / np.arange(1, gains.shape[1] + 1)).max(axis=1, initial=0.0)
    return ranks


def recalls(ranked: Int[np.ndarray, "q m"], gold: GoldLike, k: int = 10) -> Float[np.ndarray, " g"]:
    """The fraction of each query's relevant ids among the first k results; arguments as for `reciprocal_ranks`.

    If `gold` is the first k ids of an exact search, the mean is the recall of an approximate index.

    >>> recalls(np.array([[7, 3]]), [[3, 4]])
    array([0.5])
    """
    gains, rows, _ = _gains(ranked, gold, k)
    shares: np.ndarray = (gains > 0).sum(axis=1) / np.bincount(rows, minlength=len(gains))
    return shares


def discounted_gains(ranked: Int[np.ndarray, "q m"], gold: GoldLike, k: int = 10) -> Float[np.ndarray, " g"]:
    """NDCG@k of each query, with the grade as gain and the discount 1 / log2(rank + 1); as for `reciprocal_ranks`.

    This is trec_eval's `ndcg_cut`, which BEIR reports. Without grades a gain is 0 or 1.

    >>> discounted_gains(np.array([[7, 3]]), [[3]]).round(3)
    array([0.631])

    References:
      Järvelin & Kekäläinen 2002, "Cumulated Gain-Based Evaluation of IR Techniques", section 2.
    """
    gains, rows, grades = _gains(ranked, gold, k)
    discount = 1 / np.log2(np.arange(2, k + 2))
    best = grades[np.lexsort((-grades, rows))]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    counted = place < k
    ideal = np.bincount(rows[counted], best[counted] * discount[place[counted]], minlength=len(gains))
    ratios: np.ndarray = gains @ discount[: gains.shape[1]] / ideal
    return ratios
