"""The demo: searches among docstrings of Python with vectors of all-MiniLM-L6-v2, of fewer and fewer bytes.

    python -m eval.demo

`make demo` runs it; no data are needed.
"""

from __future__ import annotations

import textwrap
import warnings

import jaxwhiten
from configs import launch
from eval.common import python
from eval.pydocs import load_pydocs
from jaxwhiten import Encoder
from jaxwhiten.search import Index
from jaxwhiten.whitening import WhiteningWarning

TUNED = "sentence-transformers/all-MiniLM-L6-v2"
SIZES = (96, 48, 24)
QUESTIONS = (
    "wait until another thread is done",
    "pick a random element",
    "make a folder that is deleted afterwards",
)


def answers(index: Index) -> str:
    """The best three texts for each question."""
    lines = []
    for question in QUESTIONS:
        lines += ["", f'"{question}"']
        for hit in index.search(question, k=3):
            lines.append(f"  {hit.score:.2f}  {textwrap.shorten(hit.text, 100, placeholder=' …')}")
    return "\n".join(lines)


def main() -> None:
    warnings.simplefilter("ignore", WhiteningWarning)  # docstrings are few, and the intervals show the effect

    data = load_pydocs()
    print("1. Shrinking the vectors of all-MiniLM-L6-v2")
    print(
        f"{len(data.documents):,} docstrings of Python, each found by its first sentence (48 tokens are read):\n",
        flush=True,
    )
    encoder = Encoder.from_pretrained(TUNED, max_length=48, tuned=True)
    result = jaxwhiten.evaluate(encoder, data, bytes=SIZES, resamples=1000)
    print(result)
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
