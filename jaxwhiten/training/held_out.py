"""Scores of held-out rows: how an encoder ranks them, next to words alone, with intervals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxwhiten.coded import with_code
from jaxwhiten.datasets import RetrievalData, from_pairs
from jaxwhiten.datasets.examples import Examples, write_pairs
from jaxwhiten.datasets.nli import LABELS
from jaxwhiten.encoding import Encoder
from jaxwhiten.io import PathLike, write_text
from jaxwhiten.metrics import reciprocal_ranks, spearman
from jaxwhiten.metrics.bootstrap import Interval, mean_resamples, percentile_interval, spearman_resamples
from jaxwhiten.scoring import tfidf
from jaxwhiten.scoring.result import Change

_DEPTH = 10


class Figure(NamedTuple):
    """A score × 100 with its 95% interval, and its paired difference to the first of several."""

    value: float
    interval: Interval
    change: Change


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Rows to score an encoder on.

    Labeled pairs are scored by Spearman's correlation of similarities with scores, or with the order of the classes;
    others by MRR@10: the first sentences search among the distinct second ones.
    """

    examples: Examples

    @property
    def name(self) -> str:
        return "MRR@10" if self.examples.label is None else "Spearman"

    @functools.cached_property
    def _search(self) -> RetrievalData:
        pairs = zip(*list(self.examples.columns.values())[:2], strict=True)
        return from_pairs("held-out rows", ((first, second, first, second, True) for first, second in pairs))

    @property
    def _sides(self) -> tuple[list[str], list[str]]:
        first, second = list(self.examples.columns.values())[:2]
        return (self._search.queries, self._search.documents) if self.examples.label is None else (first, second)

    def score(self, encoder: Encoder) -> float:
        """The score × 100."""
        return self.score_of(self.values(encoder))

    def values(self, encoder: Encoder) -> Float[np.ndarray, " n"]:
        """The similarity of every labeled pair, or the reciprocal rank of every query."""
        if self.examples.label is not None:
            sides = (with_code(encoder.encode(side, show_progress=False), encoder.head.code) for side in self._sides)
            return encoder.similarity_pairwise(*sides)
        queries, documents = self._sides
        found = encoder.without_code().encode_query(queries, show_progress=False)
        stored = with_code(encoder.encode_document(documents, show_progress=False), encoder.head.code)
        return self._ranked(encoder.similarity(found, stored))

    def values_of_words(self) -> Float[np.ndarray, " n"]:
        """As `values`, of the cosines of TF-IDF."""
        first, second = self._sides
        rows = tfidf([*first, *second])
        left, right = rows[: len(first)], rows[len(first) :]
        if self.examples.label is not None:
            return np.asarray(left.multiply(right).sum(axis=1)).ravel()
        return self._ranked((left @ right.T).toarray())

    def compare(self, values: Mapping[str, Float[np.ndarray, " n"]]) -> dict[str, Figure]:
        """The figures of several systems by their values; each difference is to the first."""
        rows, label = np.stack(list(values.values())), self.examples.label
        drawn = 100 * mean_resamples(rows) if label is None else spearman_resamples(rows, label)
        scores = list(map(self.score_of, rows))
        changes = [Change(a - scores[0], percentile_interval(b - drawn[0])) for a, b in zip(scores, drawn, strict=True)]
        return dict(zip(values, map(Figure, scores, map(percentile_interval, drawn), changes), strict=True))

    def score_of(self, values: Float[np.ndarray, " n"]) -> float:
        """The score × 100 from the result of `values`."""
        label = self.examples.label
        return 100 * (float(values.mean()) if label is None else spearman(values, label))

    def _ranked(self, similarity: Float[np.ndarray, "q d"]) -> Float[np.ndarray, " q"]:
        best: Int[np.ndarray, "q k"] = np.argsort(-similarity, axis=1, kind="stable")[:, :_DEPTH]
        return reciprocal_ranks(best, self._search.gold, _DEPTH)


def write_held_out(path: PathLike, held_out: HeldOut) -> None:
    """Writes held-out rows as a table that `jaxwhiten score` reads."""
    examples = held_out.examples
    if examples.label is None:
        return write_pairs(path, examples)
    rows = zip(*examples.columns.values(), examples.label.tolist(), strict=True)
    cells = ((" ".join(first.split()), " ".join(second.split()), f"{score:g}") for first, second, score in rows)
    lines = ["sentence1\tsentence2\tscore", *map("\t".join, cells)]
    return write_text(path, "\n".join(lines) + "\n")


def hold_out(examples: Examples, share: int | float, seed: int, ordered: bool) -> tuple[Examples, HeldOut | None]:
    """Rows to train on and rows to score; none of the latter if their order by similarity is not known.

    `ordered` says that classes come from the least to the most similar; those of NLI do.
    """
    known = examples.label_kind != "class" or ordered or examples.classes == LABELS[::-1]
    if not share or len(examples.columns) < 2 or not known:
        return examples, None
    kept, held_out = examples.hold_out(share, seed)
    return kept, HeldOut(held_out)
