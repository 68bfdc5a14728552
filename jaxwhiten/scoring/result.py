"""The result of `evaluate`: a row for each form of the vectors, a table, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxwhiten.errors import optional
from jaxwhiten.metrics import UNDEFINED
from jaxwhiten.metrics.bootstrap import LEAST, Interval
from jaxwhiten.space import Space
from jaxwhiten.terminal import as_frame, as_html, counted, table

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
_HELD_OUT = (
    "real queries find 1 to 9 points less than such held-out documents, most among few rows: measure with"
    " `jaxwhiten score --queries`"
)
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


class Change(NamedTuple):
    """A paired difference with its confidence interval, whose ends are NaN if too few items were scored."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        if math.isnan(self.interval.low):
            return f"{self.value:+.2f}"
        return f"{self.value:+.2f} ({self.interval.low:+.2f} to {self.interval.high:+.2f})"


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
    versus_raw: Change | None  # difference of the first measure to the raw vectors
    versus_own: Change | None = None  # and to the encoder with its own head


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
    def pearson(self) -> float:
        """Pearson's correlation with the scores of pairs, × 100."""
        return self.rows[self.own].scores["pearson"]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.counts["pairs"]

    @property
    def verdict(self) -> str:
        """What the differences decide, in at most two sentences: about what was asked, or else about words alone."""
        raw, *others = self.rows
        if math.isnan(raw.scores[self.measure]):
            return f"{_head(self.measure)} {UNDEFINED}."
        what, n = list(self.counts.items())[-1]
        changes = [row.versus_raw for row in others if row.versus_raw and not math.isnan(row.versus_raw.value)]
        if changes and all(math.isnan(change.interval.low) for change in changes):
            return f"Too few to judge differences: {counted(n, what)}; at least {LEAST} are needed."
        if self.measure == SHARE:
            return _sentences(_found(self.rows, self.counts["documents"]), _HELD_OUT if what != "queries" else "")
        other = None if self.versus is None else self.rows[self.versus]
        [hybrid] = [row for row in others if row.name == HYBRID] or [None]
        forms = [row for row in others if row.bytes is not None and row not in (other, hybrid)]
        words = max(
            (row for row in others if row.bytes is None), key=lambda row: row.scores[self.measure], default=None
        )
        own = f"{self.rows[self.own].name} vectors"
        asked = [_against(own, other, n, what), _forms(forms, raw, n) if self.fitted_on or other is None else ""]
        against_words = _against(own, words, n, what, ": use it, or a fine-tuned encoder")
        against_hybrid = "" if any(asked) else _against(own, hybrid, n, what, ": use `hybrid`")
        limit = _ONLY_RELEVANT if self.only_relevant else ""
        return _sentences(*asked, *([] if any(asked) else [against_words]), limit, against_hybrid)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each form: scores, ends of intervals, and differences to raw vectors."""
        return as_frame([_record(row) for row in self.rows])

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
            ax.errorbar(row.bytes, score, [[score - low], [high - score]], fmt="o", capsize=3)
            ax.annotate(row.name, (row.bytes, score), xytext=(6, 4), textcoords="offset points")
        ax.set(xscale="log", xlabel="bytes per text", ylabel=HEADS[self.measure], title=self.data)
        return ax

    def __repr__(self) -> str:
        made = self.space
        row = self.rows[self.own]
        found = f"{_head(self.measure)} {UNDEFINED}"
        if not math.isnan(self.score):
            ends = f"[{self.interval.low:.2f}, {self.interval.high:.2f}]"
            rest = "".join(f", {_head(name)} {row.scores[name]:.2f}" for name in [*row.scores][1:])
            found = f"{_head(self.measure)} {self.score:.2f} {ends}{rest}"
        counts = ", ".join(counted(count, what) for what, count in self.counts.items())
        return (
            f"Evaluation({found}, {counts}; {made.model}, {made.pooling}, {self.similarity}, up to"
            f" {made.max_length} tokens, {made.dtype} by {made.engine})"
        )

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
        names = list(self.rows[0].scores)
        few = len(names) <= 2
        with_interval = [name for name in (names if few else names[:1]) if name in self.rows[0].intervals]
        heads = ["", "dims", "bytes"]
        for name in names:
            heads.append(HEADS[name] if few else _head(name))
            heads += ["95% CI"] * (name in with_interval)
        cells = [[*heads, *["vs. raw"] * (self.measure != SHARE)]]
        for row in self.rows:
            line = [row.name, str(row.dimensions), f"{row.bytes:,}" if row.bytes is not None else "–"]
            for name in names:
                score = row.scores[name]
                line.append("undefined" if math.isnan(score) else f"{score:.2f}")
                if name in with_interval:
                    low, high = row.intervals[name]
                    hidden = math.isnan(low) or (self.measure == SHARE and row is self.rows[0])
                    line.append("" if hidden else f"{low:.2f}–{high:.2f}")
            if self.measure != SHARE:
                change = row.versus_raw
                line.append(str(change) if change and not math.isnan(change.value) else "")
            cells.append(line)
        return cells


def _record(row: Row) -> dict[str, Any]:
    record: dict[str, Any] = {"name": row.name, "dimensions": row.dimensions, "bytes": row.bytes}
    for name, score in row.scores.items():
        record[name] = score
        if name in row.intervals:
            record |= {f"{name}_{end}": value for end, value in row.intervals[name]._asdict().items()}
    change = row.versus_raw or Change(math.nan, Interval(math.nan, math.nan))
    return record | {
        "versus_raw": change.value,
        "versus_raw_low": change.interval.low,
        "versus_raw_high": change.interval.high,
    }


def _sentences(*parts: str) -> str:
    """The first two of several sentences that are not empty."""
    some = [part for part in parts if part][:2]
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in some)


def _found(rows: Sequence[Row], documents: int) -> str:
    """The smallest code that surely finds most of float32's first documents, or else the one that finds most."""
    raw, *codes = rows
    where = f"of float32's first ten among these {counted(documents, 'documents')}"
    good = [row for row in codes if row.versus_raw and row.versus_raw.interval.low >= _FOUND - 100]
    if good:
        row = min(good, key=lambda row: (row.bytes or 0, -row.scores[SHARE]))
        low, high = row.intervals[SHARE]
        size = f"{row.name} of {row.bytes:,} bytes, {_part(row, raw)} of float32"
        return f"{size}, finds {row.scores[SHARE]:.1f}% ({low:.1f} to {high:.1f}) {where}, for texts like them"
    row = max(codes, key=lambda row: row.scores[SHARE])
    most = f"{row.name} of {row.bytes:,} bytes finds most: {row.scores[SHARE]:.1f}%"
    return f"no code surely finds {_FOUND:.0f}% {where}; {most}"


def _part(row: Row, raw: Row) -> str:
    """The size of a form as a fraction of that of raw vectors."""
    return f"1/{(raw.bytes or math.nan) / (row.bytes or math.nan):.3g}"


def _head(measure: str) -> str:
    return HEADS[measure].removesuffix(" × 100").removesuffix(", %")


def _against(own: str, other: Row | None, n: int, what: str, advice: str = "") -> str:
    """How vectors compare with another encoder, or with the better lexical baseline."""
    if other is None or other.versus_own is None or math.isnan(other.versus_own.value):
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
    compared = [(row, row.versus_raw) for row in forms if row.versus_raw and not math.isnan(row.versus_raw.value)]
    if not compared or not raw.bytes:
        return ""
    smaller = [(row.bytes, row, change) for row, change in compared if row.bytes and row.bytes < raw.bytes]
    if not smaller:
        row, change = max(compared, key=lambda one: one[1].value)
        if change.interval.low > 0:
            return f"{row.name} gains: {change}"
        if change.interval.high < 0:
            return f"{row.name} loses: {change}"
        return f"{row.name}: no significant change, {change}"
    lossless = [one for one in smaller if one[2].interval.low >= -LITTLE and (any(one[2].interval) or n >= _ENOUGH)]
    if not lossless:
        size, row, change = max(smaller, key=lambda one: one[2].interval.low)
        if all(other.interval.high < 0 for _, _, other in smaller):
            return f"every smaller form loses, {row.name} of {size:,} bytes the least: {change}"
        closest = f"the closest is {row.name} of {size:,} bytes: {change}"
        return f"no smaller form surely loses less than {LITTLE:g} point; {closest}"
    size, row, change = min(lossless, key=lambda one: (one[0], -one[2].value))
    what = f"loses less than {LITTLE:g} point"
    if change.interval.low > 0:
        what = "gains"
    elif change.value >= 0:
        what = f"loses nothing, or less than {LITTLE:g} point"
    return f"{row.name} of {size:,} bytes, {_part(row, raw)} of float32, {what}: {change}"
