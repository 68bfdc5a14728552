"""Scores of held-out rows: how an encoder ranks them, next to words alone, with intervals."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxwhiten.datasets import Pairs, RetrievalData, from_pairs
from jaxwhiten.datasets.examples import LABELS, Examples
from jaxwhiten.datasets.splits import independent
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.io import PathLike, atomic_path, write_text
from jaxwhiten.metrics import reciprocal_ranks, spearman
from jaxwhiten.metrics.bootstrap import Interval
from jaxwhiten.scoring import by_words, compared, encoded
from jaxwhiten.scoring.measures import Change, of_pairs, of_queries
from jaxwhiten.scoring.result import ends, shown
from jaxwhiten.terminal import counted, note, table
from jaxwhiten.types import Float, Int

RESAMPLES = 10_000
_LEAST_RESAMPLES = 4_000
_RESAMPLED = 2 * 10**8  # values in all resamples, above which there are fewer of them
_MOST = 50  # checkpoints whose choice an interval allows for; of more, as many at even distances


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
            return Pairs(first, second, self.examples.label.astype(np.float64))
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

    def _values(self, similarities: np.ndarray) -> Float[np.ndarray, " n"]:
        if isinstance(self._data, RetrievalData):
            return reciprocal_ranks(similarities, self._data.gold)
        return similarities

    @functools.cached_property
    def units(self) -> Int[np.ndarray, " n"]:
        """The unit of every value, from 0 on: values of rows that share a sentence are one, and change together."""
        units = independent(list(self.examples.columns.values())[:2])
        if not isinstance(self._data, RetrievalData):
            return units
        unit_of = dict(zip(next(iter(self.examples.columns.values())), units.tolist(), strict=True))
        return np.unique([unit_of[query] for query in self._data.queries], return_inverse=True)[1]

    def compare(
        self, values: Mapping[str, Float[np.ndarray, " n"]], checkpoints: Sequence[Float[np.ndarray, " n"]] = ()
    ) -> dict[str, Figure]:
        """The figures of several systems by their values; each difference is to the first.

        The second one may be the best of several checkpoints by their values on the same rows: the interval of its
        difference allows for this choice.
        """
        rows = np.stack([*values.values(), *checkpoints])
        resamples = int(np.clip(_RESAMPLED // rows.size, _LEAST_RESAMPLES, RESAMPLES))
        if self.examples.label is None:
            measured = of_queries({self.name: rows}, resamples, units=self.units)
        else:
            measured = of_pairs(rows, self.examples.label, self.units, resamples)
        families = [[number] for number in range(1, len(values))]
        if checkpoints:
            families[0] += range(len(values), len(rows))
        changes = measured.changes(0, families)
        [scores, *_] = measured.scores.values()
        figures = {}
        for number, name in enumerate(values):
            [interval] = measured.intervals(number).values()
            figures[name] = Figure(float(scores[number]), interval, changes[number])
        return figures

    def score_of(self, values: Float[np.ndarray, " n"]) -> float:
        """The score × 100 from the result of `values`."""
        label = self.examples.label
        return 100 * (float(values.mean()) if label is None else spearman(values, label))


class Evaluations:
    """The values of held-out rows at each evaluation of a run, in files of its folder: a resumed run has them all.

    >>> held_out = HeldOut(read_rows("searches.tsv", find_objective("mnr")))
    >>> evaluations = Evaluations(held_out, Path("run"))
    >>> evaluations.score(Encoder.from_pretrained("jaxwhiten-tiny"))
    100.0
    >>> evaluations.keep(10)
    >>> len(evaluations.checkpoints())
    1
    """

    def __init__(self, held_out: HeldOut, folder: Path):
        self._held_out = held_out
        self._folder = folder / "held_out"
        self.last: np.ndarray = np.zeros(0)  # the values of the latest score

    def score(self, encoder: Encoder) -> float:
        """The score × 100."""
        self.last = self._held_out.values(encoder)
        return self._held_out.score_of(self.last)

    def keep(self, step: int) -> None:
        """Keeps the values of the latest score as those of a step; those of later steps, of a killed run, are removed.

        Step 0, the encoder before training, is no checkpoint.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, path in self._files():
            if number >= step:
                path.unlink()
        if step:
            with atomic_path(self._folder / f"{step}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, self.last)

    def checkpoints(self) -> list[Float[np.ndarray, " n"]]:
        """The values of all steps, or of many at even distances.

        Raises:
          MismatchError: They are those of other rows.
        """
        files = self._files()
        chosen = np.unique(np.linspace(0, len(files) - 1, min(_MOST, len(files))).round().astype(int))
        stored = [np.load(files[number][1]) for number in chosen]
        if any(values.shape != self._held_out.units.shape for values in stored):
            raise MismatchError(f"{self._folder} records scores of other rows than these: use a new output folder.")
        return stored

    def _files(self) -> list[tuple[int, Path]]:
        return sorted((int(path.stem), path) for path in self._folder.glob("*.npy") if path.stem.isdigit())


def write_held_out(path: PathLike, held_out: HeldOut) -> None:
    """Writes held-out rows as a table that `jaxwhiten score` reads.

    >>> write_held_out("held-out.tsv", HeldOut(read_rows("pairs.tsv", find_objective("cosent"))))
    >>> Path("held-out.tsv").read_text().splitlines()[1]
    'A dog runs.\\tA dog ran.\\t1'
    """
    first, second, *_ = ([" ".join(text.split()) for text in column] for column in held_out.examples.columns.values())
    label = held_out.examples.label
    columns = {"query": first, "document": second}
    if label is not None:
        columns = {"sentence1": first, "sentence2": second, "score": [f"{score:g}" for score in label.tolist()]}
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerows([[*columns], *zip(*columns.values(), strict=True)])
    write_text(path, text.getvalue())


def hold_out(examples: Examples, share: int | float, seed: int, ordered: bool) -> tuple[Examples, HeldOut | None]:
    """Rows to train on and rows to score; none of the latter if their order by similarity is not known.

    `ordered` says that classes come from the least to the most similar; those of NLI do.

    >>> examples = read_rows("searches.tsv", find_objective("mnr"))
    >>> kept, held_out = hold_out(examples, 0.5, seed=0, ordered=False)
    >>> len(kept), len(held_out.examples)
    (1, 1)
    """
    gradable = examples.label_kind != "class" or ordered or examples.classes == LABELS[::-1]
    if not share or len(examples.columns) < 2 or not gradable:
        return examples, None
    rest, held_out = examples.hold_out(share, seed)
    if left_out := rest.skipped - examples.skipped:
        note(f"skipped {counted(left_out, 'rows')} whose sentences are those of held-out rows and of rows to train on")
    return rest, HeldOut(held_out)


def beside(examples: Examples, held_out: HeldOut) -> Examples:
    """Rows to train on, without those that have a sentence of the held-out rows, which come from elsewhere.

    >>> held_out = HeldOut(read_rows("pairs.tsv", find_objective("cosent")))
    >>> rows = read_rows({"anchor": ["a dog", "A DOG runs."], "positive": ["snow", "fog"]}, find_objective("mnr"))
    >>> len(beside(rows, held_out))
    1

    Raises:
      InputError: Every row has one.
    """
    rest = examples.without_sentences(held_out.examples.columns.values())
    shared = len(examples) - len(rest)
    if not len(rest):
        raise InputError(f"All {shared:,} rows have a sentence of the rows to score: score others, or train on others.")
    if shared:
        rows = counted(len(examples), "rows")
        note(f"skipped {shared:,} of {rows}, whose sentences are among those of the rows to score")
    return rest


def held_out_table(figures: Mapping[str, Figure], held_out: HeldOut) -> str:
    """The scores of held-out rows before and after a training, with their intervals, as a table for a terminal."""
    count = int(held_out.units.max()) + 1
    groups = f" in {count:,} groups without a common sentence" if count < len(held_out.units) else ""
    cells = [["", held_out.name, "95% CI", "vs. before"]]
    cells += [[name, shown(value), ends(interval), str(change)] for name, (value, interval, change) in figures.items()]
    return "\n".join([f"{len(held_out.examples):,} held-out rows{groups}; {held_out.name} × 100", "", *table(cells)])


def verdict(figures: Mapping[str, Figure], measure: str, checkpoints: int = 1) -> str:
    """One sentence: whether training helped, beyond chance, and whether words alone do better.

    Of several checkpoints, the best was chosen on the same rows; the interval allows for that.
    """
    after = figures["after"]
    words = figures["TF-IDF"]
    gain, (low, high) = after.change
    choice = f", which allows for choosing the best of {checkpoints} checkpoints on the same rows"
    changed = f"{measure} {gain:+.2f}, 95% CI {low:+.2f} to {high:+.2f}{choice if checkpoints > 1 else ''}"
    if math.isnan(low):
        text = f"Too few held-out rows share no sentence to judge the training ({measure} {gain:+.2f}): hold out more"
    elif low > 0:
        text = f"Training helped: {changed}"
    elif high < 0:
        text = f"Training made the model worse ({changed}): keep the old one, or use a lower learning rate or more rows"
    else:
        text = f"Training made no significant difference ({changed}): use more rows"
    if words.value > after.value:
        return f"{text}; TF-IDF is ahead by {words.value - after.value:.2f}."
    return f"{text}."
