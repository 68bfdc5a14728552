"""The result of `evaluate`: a row for each form of the vectors, a table, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxwhiten.errors import optional
from jaxwhiten.metrics import UNDEFINED
from jaxwhiten.metrics.bootstrap import LEAST, Interval
from jaxwhiten.scoring.measures import NO_CHANGE, Change
from jaxwhiten.space import Space
from jaxwhiten.terminal import as_html, counted, table

RAW = "raw"
WHITENED = "whitened"
HYBRID = "hybrid"
SHARE = "float32_recall_at_10"
ERROR = "cosine_error"
_FOUND = 90.0  # percent of float32's first documents that a code should find
_MANY = 1e7  # pairs that nobody labels
LITTLE = 1.0  # points of the first measure
# If none of so many items changed, fewer than 3 of them change with 95% confidence, and `LITTLE` is not lost.
_ENOUGH = round(3 * 100 / LITTLE)
_ONLY_RELEVANT = (
    "only documents that are relevant to a query were searched, which hides losses: add the rest of the corpus with"
    " `corpus`"
)
_HELD_OUT = "real queries find 1 to 9 points less than such held-out documents, most among few rows: pass `queries`"
HEADS = {
    "spearman": "Spearman × 100",
    "pearson": "Pearson × 100",
    "average_precision": "average precision × 100",
    "roc_auc": "ROC AUC × 100",
    "ndcg_at_10": "nDCG@10 × 100",
    "mrr_at_10": "MRR@10 × 100",
    "recall_at_10": "recall@10 × 100",
    "recall_at_100": "recall@100 × 100",
    SHARE: "of float32's ten, %",
    ERROR: "cosine error × 100",
}


@dataclass(frozen=True)
class Row:
    """The scores of one form of the vectors, or of a lexical baseline; × 100, and NaN if undefined.

    >>> encoder, pairs = Encoder.from_pretrained("jaxwhiten-tiny"), load_sts("sts_sample").splits["test"]
    >>> evaluate(encoder, pairs, resamples=100).rows[0].bytes
    1024
    """

    name: str
    dimensions: int  # of the vectors, or the number of different words
    bytes: int | None  # per text; None for a lexical baseline
    scores: dict[str, float]  # by measure
    intervals: dict[str, Interval]  # 95% bootstrap intervals of measures
    versus_raw: Change = NO_CHANGE  # difference of the first measure to the raw vectors
    versus_own: Change = NO_CHANGE  # and to the encoder with its own head


@dataclass(frozen=True)
class Evaluation:
    """Scores of an encoder; `print` shows them as a table with a verdict.

    >>> encoder, pairs = Encoder.from_pretrained("jaxwhiten-tiny"), load_sts("sts_sample").splits["test"]
    >>> evaluate(encoder, pairs, resamples=100).measure
    'spearman'
    """

    data: str  # its name, empty for pairs in memory
    counts: dict[str, int]  # of pairs, or of documents and queries, and of these whose own document is left out
    rows: tuple[Row, ...]  # the raw vectors first
    own: int  # the row of the encoder with its own head
    fitted_on: str  # the texts that whitenings and codes were fitted on
    similarity: str  # its name, such as "cosine"
    space: Space  # of the vectors
    resamples: int
    seed: int
    versus: int | None = None  # the row of another encoder
    only_relevant: bool = False  # whether every document that was searched is relevant to a query

    @property
    def measure(self) -> str:
        """The first measure, which differences and the verdict are about."""
        return next(iter(self.rows[0].scores))

    @property
    def score(self) -> float:
        """The first measure of the encoder with its own head."""
        return self.rows[self.own].scores[self.measure]

    @property
    def interval(self) -> Interval:
        """The 95% bootstrap interval of `score`."""
        return self.rows[self.own].intervals[self.measure]

    @property
    def spearman(self) -> float:
        """Spearman's correlation with the scores of pairs, × 100; NaN if all similarities are equal, or for labels."""
        return self.rows[self.own].scores.get("spearman", math.nan)

    @property
    def verdict(self) -> str:
        """What the differences decide, in at most two sentences: about what was asked, or else about words alone."""
        raw, *others = self.rows
        if math.isnan(raw.scores[self.measure]):
            return f"{_head(self.measure)} {UNDEFINED}."
        what, n = list(self.counts.items())[-1]
        changes = [row.versus_raw for row in others if not math.isnan(row.versus_raw.value)]
        if changes and all(math.isnan(change.interval.low) for change in changes):
            return f"Too few to judge differences: {counted(n, what)}; at least {LEAST} are needed."
        if self.measure == SHARE:
            return _sentences(_found(self.rows, self.counts["documents"]), _HELD_OUT if what != "queries" else "")
        other = None if self.versus is None else self.rows[self.versus]
        hybrid = next((row for row in others if row.name == HYBRID), None)
        forms = [row for row in others if row.bytes is not None and row not in (other, hybrid)]
        words = max(
            (row for row in others if row.bytes is None), key=lambda row: row.scores[self.measure], default=None
        )
        own = _named(self.rows[self.own])
        asked = [
            _against(own, other, n, what),
            _forms(forms, raw, n) if self.fitted_on or other is None else "",
        ]
        if not any(asked):
            asked = [_against(own, words, n, what, ": use it, or a fine-tuned encoder")]
            if not self.only_relevant:
                asked.append(_against(own, hybrid, n, what, ": use `hybrid`"))
        return _sentences(*asked, _ONLY_RELEVANT if self.only_relevant else "")

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each form: scores, ends of intervals, and differences to raw vectors."""
        return optional("pandas", "data", "A DataFrame").DataFrame([_record(row) for row in self.rows])

    def plot(self, ax: Any = None) -> Any:
        """Draws the first measure against bytes, with intervals, and returns Matplotlib's axes.

        Lexical baselines, which have no bytes, are horizontal lines.

        Args:
          ax: The axes to draw on; new ones by default.

        Raises:
          MissingDependencyError: Matplotlib is not installed.
        """
        if ax is None:
            ax = optional("matplotlib.pyplot", "train", "Plotting", "matplotlib").subplots(layout="constrained")[1]
        for row in self.rows:
            score, (low, high) = row.scores[self.measure], row.intervals[self.measure]
            if row.bytes is None:
                ax.axhline(score, color="gray", linestyle=":")
                ax.annotate(row.name, (1, score), xycoords=("axes fraction", "data"), ha="right", va="bottom")
                continue
            ax.errorbar(row.bytes, score, [[max(score - low, 0)], [max(high - score, 0)]], fmt="o", capsize=3)
            ax.annotate(row.name, (row.bytes, score), xytext=(6, 4), textcoords="offset points")
        ax.set(xscale="log", xlabel="bytes per text", ylabel=HEADS[self.measure], title=self.data)
        return ax

    def __repr__(self) -> str:
        low, high = self.interval
        interval = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"
        return f"Evaluation({_head(self.measure)} {shown(self.score)}{interval}; {self._heading})"

    def __str__(self) -> str:
        return "\n".join([self._heading, "", *table(self._cells), *(["", self.verdict] if self.verdict else [])])

    def _repr_html_(self) -> str:
        return as_html(self._cells, f"{self._heading}. {self.verdict}")

    @property
    def _heading(self) -> str:
        counts = ", ".join(counted(count, what) for what, count in self.counts.items())
        fitted = f"; {self.fitted_on}" if self.fitted_on else ""
        unit = ". Scores × 100" if len(self.rows[0].scores) > 2 else ""
        origin = f"{self.space.model}, {self.space.dtype} by {self.space.engine}"
        return f"{self.data + ': ' if self.data else ''}{counts}; {origin}{fitted}{unit}"

    @property
    def _cells(self) -> list[list[str]]:
        """The table, whose first row is its head; each of at most two measures has its interval, else the first."""
        rows = [self._cells_of(row) for row in self.rows]
        return [[head for head, _ in rows[0]], *([cell for _, cell in row] for row in rows)]

    def _cells_of(self, row: Row) -> list[tuple[str, str]]:
        few = len(row.scores) < 3
        size = "–" if row.bytes is None else f"{row.bytes:,}"
        cells = [("", row.name), ("dims", str(row.dimensions)), ("bytes", size)]
        for name, score in row.scores.items():
            cells.append((HEADS[name] if few else _head(name), shown(score)))
            if name in row.intervals and (few or name == self.measure):
                cells.append(("95% CI", ends(row.intervals[name])))
        if self.measure != SHARE:
            cells.append(("vs. raw", str(row.versus_raw)))
        return cells


def shown(score: float) -> str:
    """A score in a table.

    >>> shown(50), shown(math.nan)
    ('50.00', 'undefined')
    """
    return "undefined" if math.isnan(score) else f"{score:.2f}"


def ends(interval: Interval) -> str:
    """An interval in a table; empty if it is undefined.

    >>> ends(Interval(40, 60))
    '40.00–60.00'
    """
    return "" if math.isnan(interval.low) else f"{interval.low:.2f}–{interval.high:.2f}"


def _record(row: Row) -> dict[str, Any]:
    record: dict[str, Any] = {"name": row.name, "dimensions": row.dimensions, "bytes": row.bytes, **row.scores}
    for name, (low, high) in {**row.intervals, "versus_raw": row.versus_raw.interval}.items():
        record |= {f"{name}_low": low, f"{name}_high": high}
    return record | {"versus_raw": row.versus_raw.value}


def _sentences(*parts: str) -> str:
    """The first two of several sentences that are not empty."""
    some = [part for part in parts if part][:2]
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in some)


def _found(rows: Sequence[Row], documents: int) -> str:
    """The smallest code that surely finds most of float32's first documents, or else the one that finds most."""
    raw, *others = rows
    codes = [row for row in others if row.name.endswith("code")] or others  # int8 and binary are for comparison
    where = f"of float32's first ten among these {counted(documents, 'documents')}"
    good = [row for row in codes if row.versus_raw.interval.low >= _FOUND - 100]
    if good:
        row = min(good, key=lambda row: (row.bytes or 0, -row.scores[SHARE]))
        low, high = row.intervals[SHARE]
        return (
            f"{_size(row, raw)}, find {row.scores[SHARE]:.1f}% ({low:.1f} to {high:.1f}) {where}, for texts like them"
        )
    row = max(codes, key=lambda row: row.scores[SHARE])
    most = f"{_named(row)} of {row.bytes:,} bytes find most: {row.scores[SHARE]:.1f}%"
    return f"no code surely finds {_FOUND:.0f}% {where}; {most}"


def _named(row: Row) -> str:
    """A form in a sentence, as a plural: a code is a form of its own, and other names are adjectives of vectors."""
    return f"{row.name}s" if row.name.endswith("code") else f"{row.name} vectors"


def _size(row: Row, raw: Row) -> str:
    """A form with its bytes, also as a fraction of those of raw vectors."""
    return f"{_named(row)} of {row.bytes:,} bytes, 1/{(raw.bytes or math.nan) / (row.bytes or math.nan):.3g} of float32"


def _head(measure: str) -> str:
    return HEADS[measure].removesuffix(" × 100").removesuffix(", %")


def _against(own: str, other: Row | None, n: int, what: str, advice: str = "") -> str:
    """How vectors compare with another encoder, or with the better lexical baseline."""
    if other is None or math.isnan(other.versus_own.value):
        return ""
    value, (low, high) = other.versus_own
    if high < 0:
        return f"{own} beat {other.name} by {-value:.2f} ({-high:.2f} to {-low:.2f})"
    if low > 0:
        return f"{other.name} beats {own} by {value:.2f} ({low:.2f} to {high:.2f}){advice}"
    needed = n * ((high - low) / 2 / value) ** 2 if value else math.inf
    if n < needed < _MANY:
        decide = f", about {float(f'{needed:.2g}'):,.0f} would decide {abs(value):.2f}"
    else:
        decide = ""
    return f"{own} and {other.name} do not differ significantly: {other.versus_own} on {counted(n, what)}{decide}"


def _forms(forms: list[Row], raw: Row, n: int) -> str:
    """The smallest form of the vectors that surely loses little; without smaller ones, the effect of the whitening.

    The form is chosen by the scores that it is judged by: the intervals of all forms hold at once.
    """
    compared = [row for row in forms if not math.isnan(row.versus_raw.value)]
    smaller = [row for row in compared if (row.bytes or 0) < (raw.bytes or 0)]
    if not compared:
        return ""
    if not smaller:
        row = max(compared, key=lambda row: row.versus_raw.value)
        low, high = row.versus_raw.interval
        what = "gain" if low > 0 else "lose" if high < 0 else "make no significant difference"
        return f"{_named(row)} {what}: {row.versus_raw}"
    lossless = [
        row
        for row in smaller
        if row.versus_raw.interval.low >= -LITTLE and (any(row.versus_raw.interval) or n >= _ENOUGH)
    ]
    if not lossless:
        row = max(smaller, key=lambda row: row.versus_raw.interval.low)
        best = f"{_named(row)} of {row.bytes:,} bytes"
        if all(other.versus_raw.interval.high < 0 for other in smaller):
            return f"every smaller form loses, {best} the least: {row.versus_raw}"
        return f"no smaller form surely loses less than {LITTLE:g} point; the closest are {best}: {row.versus_raw}"
    row = min(lossless, key=lambda row: (row.bytes or 0, -row.versus_raw.value))
    what = f"lose less than {LITTLE:g} point"
    if row.versus_raw.interval.low > 0:
        what = "gain"
    elif row.versus_raw.value >= 0:
        what = f"lose nothing, or less than {LITTLE:g} point"
    return f"{_size(row, raw)}, {what}: {row.versus_raw}"
