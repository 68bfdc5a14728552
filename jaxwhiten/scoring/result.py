"""The result of `evaluate`: a row for each form of the vectors, a table, and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from jaxwhiten.metrics import UNDEFINED
from jaxwhiten.metrics.bootstrap import LEAST, Interval
from jaxwhiten.space import Space
from jaxwhiten.terminal import counted

RAW = "raw"
_MANY = 1e7  # pairs that nobody labels
LITTLE = 1.0  # points of the first measure
# If none of so many items changed, fewer than 3 of them change with 95% confidence, and `LITTLE` is not lost.
_ENOUGH = round(3 * 100 / LITTLE)
_ONLY_RELEVANT = (
    " Only documents that are relevant to a query were searched, which hides losses: add the rest of the corpus"
    " with `corpus`."
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
        """What the differences decide, in one sentence."""
        raw, *others = self.rows
        if math.isnan(raw.scores[self.measure]):
            return f"{_head(self.measure)} {UNDEFINED}."
        other = None if self.versus is None else self.rows[self.versus]
        forms = [row for row in others if row.bytes is not None and row is not other]
        words = max(
            (row for row in others if row.bytes is None), key=lambda row: row.scores[self.measure], default=None
        )
        what, n = list(self.counts.items())[-1]
        changes = [row.versus_raw for row in others if row.versus_raw and not math.isnan(row.versus_raw.value)]
        if changes and all(math.isnan(change.interval.low) for change in changes):
            return f"Too few to judge differences: {counted(n, what)}; at least {LEAST} are needed."
        own = f"{self.rows[self.own].name} vectors"
        advice = ": use it, or a fine-tuned encoder"
        against = _against(own, other, n, what), _against(own, words, n, what, advice)
        parts = [part for part in (*against, _forms(forms, raw, n)) if part]
        if not parts:
            return ""
        text = "; ".join(parts)
        limit = _ONLY_RELEVANT if self.only_relevant else ""
        return f"{text[:1].upper()}{text[1:]}.{limit}"

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
        names = list(self.rows[0].scores)
        heads = ["", "dims", "bytes", HEADS[names[0]], "95% CI", *map(HEADS.__getitem__, names[1:]), "vs. raw"]
        if len(names) > 2:
            heads[3:] = [head.removesuffix(" × 100") for head in heads[3:]]
        cells = [heads, *(self._cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in cells
        ]
        counts = ", ".join(counted(count, what) for what, count in self.counts.items())
        fitted = f"; {self.fitted_on}" if self.fitted_on else ""
        unit = ". Scores × 100" if len(names) > 2 else ""
        origin = f"{self.space.model}, {self.space.dtype} by {self.space.engine}"
        heading = f"{self.data + ': ' if self.data else ''}{counts}; {origin}{fitted}{unit}"
        return "\n".join([heading, "", *lines, *(["", self.verdict] if self.verdict else [])])

    def _cells(self, row: Row) -> list[str]:
        def shown(name: str) -> str:
            if math.isnan(row.scores[name]):
                return "undefined"
            return f"{row.scores[name]:.2f}"

        (low, high), (first, *rest) = row.intervals[self.measure], row.scores
        ends = "" if math.isnan(low) else f"{low:.2f}–{high:.2f}"
        if row.versus_raw and not math.isnan(row.versus_raw.value):
            change = str(row.versus_raw)
        else:
            change = ""
        size = f"{row.bytes:,}" if row.bytes is not None else "–"
        return [row.name, str(row.dimensions), size, shown(first), ends, *map(shown, rest), change]


def _head(measure: str) -> str:
    return HEADS[measure].removesuffix(" × 100")


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
    if len(compared) > 1:
        choice = f", which allows for choosing among {len(compared)} forms on the same data"
    else:
        choice = ""
    smaller = [(row.bytes, row, change) for row, change in compared if row.bytes and row.bytes < raw.bytes]
    if not smaller:
        row, change = max(compared, key=lambda one: one[1].value)
        if change.interval.low > 0:
            return f"{row.name} gains: {change}{choice}"
        if change.interval.high < 0:
            return f"{row.name} loses: {change}{choice}"
        return f"{row.name}: no significant change, {change}{choice}"
    lossless = [one for one in smaller if one[2].interval.low >= -LITTLE and (any(one[2].interval) or n >= _ENOUGH)]
    if not lossless:
        size, row, change = max(smaller, key=lambda one: one[2].interval.low)
        if all(other.interval.high < 0 for _, _, other in smaller):
            return f"every smaller form loses, {row.name} of {size:,} bytes the least: {change}{choice}"
        sentence = (
            f"a smaller form loses less than {LITTLE:g} point; the closest is {row.name} of {size:,} bytes, {change}"
        )
        return f"these data do not show that {sentence}{choice}"
    size, row, change = min(lossless, key=lambda one: (one[0], -one[2].value))
    what = f"loses less than {LITTLE:g} point"
    if change.interval.low > 0:
        what = "gains"
    elif change.value >= 0:
        what = f"loses nothing, or less than {LITTLE:g} point"
    return f"{row.name} of {size:,} bytes, 1/{raw.bytes / size:.3g} of float32, {what}: {change}{choice}"
