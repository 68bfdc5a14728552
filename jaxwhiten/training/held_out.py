"""Scores of held-out rows: how an encoder ranks them, next to words alone, with intervals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxwhiten.datasets import Pairs, RetrievalData, from_pairs
from jaxwhiten.datasets.examples import Examples, write_pairs
from jaxwhiten.datasets.nli import LABELS
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.io import PathLike, write_text
from jaxwhiten.metrics import reciprocal_ranks, spearman
from jaxwhiten.metrics.bootstrap import Interval, mean_resamples, percentile_interval, spearman_resamples
from jaxwhiten.scoring import by_words, compared, encoded
from jaxwhiten.scoring.result import Change
from jaxwhiten.shapes import Float


class Figure(NamedTuple):
    """A score × 100 with its 95% interval, and its paired difference to the first of several.

    >>> held_out = HeldOut(read_rows("searches.tsv", find_objective("mnr")))
    >>> held_out.compare({"words": held_out.values_of_words()})["words"].value
    50.0
    """

    value: float
    interval: Interval
    change: Change


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Rows to score an encoder on.

    Labeled pairs are scored by Spearman's correlation of similarities with scores, or with the order of the classes;
    others by MRR@10: the first sentences search among the distinct second ones.

    >>> held_out = HeldOut(read_rows("searches.tsv", find_objective("mnr")))
    >>> held_out.score(Encoder.from_pretrained("jaxwhiten-tiny"))
    100.0
    """

    examples: Examples

    def __post_init__(self) -> None:
        label = self.examples.label
        if label is not None and not np.ptp(label):
            raise InputError(
                f"The {len(label)} held-out rows have equal scores, which nothing correlates with: hold out more,"
                " or others by another seed, or none with held_out=0."
            )

    @property
    def name(self) -> str:
        return "MRR@10" if self.examples.label is None else "Spearman"

    @functools.cached_property
    def _data(self) -> Pairs | RetrievalData:
        first, second = list(self.examples.columns.values())[:2]
        if self.examples.label is not None:
            return Pairs(first, second, self.examples.label.astype(np.float64), [""] * len(first))
        return from_pairs("held-out rows", ((a, b, a, b, True) for a, b in zip(first, second, strict=True)))

    def score(self, encoder: Encoder) -> float:
        """The score × 100."""
        return self.score_of(self.values(encoder))

    def values(self, encoder: Encoder) -> Float[np.ndarray, " n"]:
        """The similarity of every labeled pair, or the reciprocal rank of every query."""
        return self._values(compared(encoder, self._data, functools.partial(encoded, show_progress=False)))

    def values_of_words(self) -> Float[np.ndarray, " n"]:
        """As `values`, of TF-IDF."""
        return self._values(next(by_words(self._data))[-1])

    def _values(self, found: np.ndarray) -> Float[np.ndarray, " n"]:
        return reciprocal_ranks(found, self._data.gold) if isinstance(self._data, RetrievalData) else found

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


def write_held_out(path: PathLike, held_out: HeldOut) -> None:
    """Writes held-out rows as a table that `jaxwhiten score` reads.

    >>> write_held_out("held-out.tsv", HeldOut(read_rows("pairs.tsv", find_objective("cosent"))))
    >>> Path("held-out.tsv").read_text().splitlines()[1]
    'A dog runs.\\tA dog ran.\\t1'
    """
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

    >>> examples = read_rows("searches.tsv", find_objective("mnr"))
    >>> kept, held_out = hold_out(examples, 0.5, seed=0, ordered=False)
    >>> len(kept), len(held_out.examples)
    (1, 1)
    """
    known = examples.label_kind != "class" or ordered or examples.classes == LABELS[::-1]
    if not share or len(examples.columns) < 2 or not known:
        return examples, None
    kept, held_out = examples.hold_out(share, seed)
    return kept, HeldOut(held_out)
