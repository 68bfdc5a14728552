"""The demo: searches among docstrings of Python with vectors of all-MiniLM-L6-v2, of fewer and fewer bytes.

    python -m eval.demo [FOLDER]

Writes quality.png to the folder, by default runs/demo. `make demo` runs it; no data are needed.
"""

from __future__ import annotations

import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import jaxwhiten
from configs import launch
from eval.common import python
from eval.plotting import COLOURS, new_figure
from eval.pydocs import load_pydocs
from eval.report.plots import scale_amounts
from jaxwhiten import Encoder, scoring
from jaxwhiten.datasets import RetrievalData
from jaxwhiten.errors import InputError
from jaxwhiten.search import Index
from jaxwhiten.whitening import WhiteningWarning

TUNED = "sentence-transformers/all-MiniLM-L6-v2"
SIZES = (96, 48, 24)
QUESTIONS = (
    "wait until another thread is done",
    "pick a random element",
    "make a folder that is deleted afterwards",
)


class Line(NamedTuple):
    """A form of the documents: its scores, its size for a million documents, and the time of a query."""

    name: str
    scores: scoring.Row
    megabytes: float
    milliseconds: float


def compared(encoder: Encoder, data: RetrievalData) -> tuple[list[Line], Index]:
    """The lines of the table, and an index of the queries in few bytes; every text is encoded once."""
    vectors: dict[str | None, np.ndarray] = {}

    def encode(model: Encoder, texts: Sequence[str], role: str | None) -> np.ndarray:
        vectors[role] = model.encode(texts)
        return vectors[role]

    result = jaxwhiten.evaluate(encoder, data, bytes=SIZES, resamples=1000, encode=encode)
    documents = vectors["document"]
    queries = vectors["query"]
    timed_queries = queries[:1000]  # whose time is taken
    indexes = {"float32": encoder.index(data.documents, vectors=documents)}
    for size in SIZES:
        small = encoder.shrink(documents, bytes=size)
        indexes[f"{size} bytes"] = small.index(data.documents, vectors=documents)

    raw, *rest = result.rows
    of_codes = [row for row in rest if row.name == "code"]
    lines = [
        Line(
            name, row, row.bytes, _milliseconds(lambda index=index: index.search(timed_queries, 10), len(timed_queries))
        )
        for (name, index), row in zip(indexes.items(), [raw, *of_codes], strict=True)
    ]
    counts = scoring.count([*data.documents, *data.queries])
    for row in (row for row in rest if row.bytes is None):
        words, stored = scoring.weigh(row.name, counts, counts[: len(documents)])
        words = words[len(documents) :]
        stored = stored[: len(documents)]
        size = stored.data.nbytes + stored.indices.nbytes + stored.indptr.nbytes
        milliseconds = _milliseconds(
            lambda words=words, stored=stored: scoring.nearest(words, stored, 10), len(queries)
        )
        lines.append(Line(row.name, row, size / len(documents), milliseconds))
    return lines, encoder.shrink(queries, bytes=SIZES[1]).index(data.queries, vectors=queries)


def _milliseconds(search: Callable[[], object], queries: int) -> float:
    search()  # compiles
    start = time.perf_counter()
    search()
    return 1000 * (time.perf_counter() - start) / queries


def table(lines: Sequence[Line]) -> str:
    """The lines as a table."""
    text = [f"{'':<10} {'nDCG@10':>8} {'minus float32 (95% CI)':>26} {'MB per million':>15} {'ms per query':>13}"]
    for name, row, megabytes, milliseconds in lines:
        change = str(row.versus_raw or "")
        text.append(
            f"{name:<10} {row.scores['ndcg_at_10']:8.1f} {change:>26} {megabytes:15,.0f} {milliseconds:13.3f}".rstrip()
        )
    return "\n".join(text)


def draw(lines: Sequence[Line], path: Path) -> None:
    """Quality against size: a line for the vectors, a point for each lexical baseline."""
    groups = [[line for line in lines if line.scores.bytes is not None]]
    groups += [[line] for line in lines if line.scores.bytes is None]
    with new_figure(path, 6.4, 3.6) as figure:
        axis = figure.subplots()
        for group, colour in zip(groups, COLOURS, strict=False):
            x = [line.megabytes for line in group]
            y = [line.scores.scores["ndcg_at_10"] for line in group]
            bounds = np.array([line.scores.intervals["ndcg_at_10"] for line in group]).T
            axis.errorbar(x, y, np.abs(bounds - y), color=colour, marker="o", ms=5, lw=1.5, capsize=2)
            for line, *position in zip(group, x, y, strict=True):
                axis.annotate(line.name, position, (7, -10), textcoords="offset points", fontsize=8, color=colour)
        axis.margins(x=0.12)
        axis.set(xlabel="MB per million documents", ylabel="nDCG@10 × 100, 95% interval")
        axis.set_title("Docstrings found by their first sentences: all-MiniLM-L6-v2 and words")
        scale_amounts(axis)


def answers(index: Index) -> str:
    """The best three texts for each question."""
    lines = []
    for question in QUESTIONS:
        lines += ["", f'"{question}"']
        for hit in index.search(question, k=3):
            lines.append(f"  {hit.score:.2f}  {textwrap.shorten(hit.text, 100, placeholder=' …')}")
    return "\n".join(lines)


def main() -> None:
    if len(sys.argv) > 2:
        raise InputError("python -m eval.demo [FOLDER]")
    picture = Path(*sys.argv[1:] or ["runs/demo"]) / "quality.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", WhiteningWarning)  # docstrings are few, and the intervals show the effect

    data = load_pydocs()
    print("1. Shrinking the vectors of all-MiniLM-L6-v2")
    print(
        f"{len(data.documents):,} docstrings of Python, each found by its first sentence (48 tokens are read):\n",
        flush=True,
    )
    lines, index = compared(Encoder.from_pretrained(TUNED, max_length=48, tuned=True), data)
    draw(lines, picture)
    print(f"{table(lines)}\n\nPicture: {picture}")
    print(f"\n2. Searching the {index.size:,} first sentences, in {SIZES[1]} bytes each")
    print(answers(index))
    print(
        "\nWith your own texts:\n"
        f'  encoder = jaxwhiten.Encoder.from_pretrained("{TUNED}")\n'
        "  small = encoder.shrink(texts, bytes=48)\n"
        '  small.index(texts, ids=ids).search("your question", k=3)\n'
        f"Your own encoder on the seven STS tasks: {python()} -m eval.sts --config.model=FOLDER_OR_HUB_ID"
    )


if __name__ == "__main__":
    launch.run_without_config(main)
