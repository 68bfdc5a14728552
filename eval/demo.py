"""The demo: searches among docstrings of Python with vectors of all-MiniLM-L6-v2, of fewer and fewer bytes.

    python -m eval.demo [FOLDER]

Writes quality.png to the folder, by default runs/demo. `make demo` runs it; no data are needed.
"""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import jaxwhiten
from configs import launch
from eval.common import python
from eval.plotting import COLORS, new_figure
from eval.pydocs import load_pydocs
from eval.report.plots import scale_amounts
from jaxwhiten import Encoder, scoring
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


def draw(rows: Sequence[scoring.Row], path: Path) -> None:
    """Quality against size: a line for the vectors and their codes, and lines across for words."""
    sizes = [row for row in rows if row.bytes is not None and row.name in ("raw", "code")]
    with new_figure(path, 6.4, 3.6) as figure:
        axis = figure.subplots()
        x = [row.bytes for row in sizes]
        y = [row.scores["ndcg_at_10"] for row in sizes]
        bounds = np.array([row.intervals["ndcg_at_10"] for row in sizes]).T
        axis.errorbar(x, y, np.abs(bounds - y), color=COLORS[0], marker="o", ms=5, lw=1.5, capsize=2, label="vectors")
        for row, color in zip((row for row in rows if row.bytes is None), COLORS[1:], strict=False):
            axis.axhline(row.scores["ndcg_at_10"], ls=":", lw=1.2, color=color, label=row.name)
        axis.set(xlabel="MB per million documents", ylabel="nDCG@10 × 100, 95% interval")
        axis.set_title("Docstrings found by their first sentences: all-MiniLM-L6-v2 and words")
        axis.legend()
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
    encoder = Encoder.from_pretrained(TUNED, max_length=48, tuned=True)
    result = jaxwhiten.evaluate(encoder, data, bytes=SIZES, resamples=1000)
    draw(result.rows, picture)
    print(f"{result}\n\nPicture: {picture}")
    index = encoder.shrink(data.queries, bytes=SIZES[1]).index(data.queries)
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
