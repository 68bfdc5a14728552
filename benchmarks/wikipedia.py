"""Real vectors for the search benchmarks: sentences of Wikipedia paragraphs, each looked for by the sentence after it.

    python -m benchmarks.wikipedia [--documents 300000] [--cache FOLDER]

A document is the first sentence of a paragraph, a query the second sentence of the same paragraph. Paragraphs are the
lines of the text files in text/enwiki below the data folder (JAXWHITEN_DATA_DIR), every second one of them. Vectors are
made once by `EmbeddingStore`, in parts, so that a run that was stopped goes on where it was, and a benchmark with fewer
documents reads the same ones.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxwhiten import Encoder
from jaxwhiten.datasets import Corpus, corpus_files
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import DataError, DataNotFoundError

DOCUMENTS = 300_000
DOCUMENTS_A_QUERY = 75
PART = 15_000  # documents in an entry of the store
ENCODERS = {"all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2", "jaxwhiten-tiny": "jaxwhiten-tiny"}
_WORDS = 5  # that a sentence has at least
_END = re.compile(r'(?<=[a-z0-9)"]{2}[.!?])["”]? +(?=["“(]?[A-Z])')


class Passages(NamedTuple):
    """Documents and queries, and what they are."""

    documents: list[str]
    queries: list[str]
    sources: np.ndarray  # [queries]: the document from the same paragraph
    provenance: dict[str, object]


def sentence_pairs(corpus: Corpus) -> Iterator[tuple[str, str]]:
    """The first two sentences of every second paragraph that has two of at least five words."""
    for paragraph in itertools.islice(corpus.passages(), 0, None, 2):
        first, second, *_ = [*_END.split(paragraph, maxsplit=2), "", ""]
        if min(len(first.split()), len(second.split())) >= _WORDS:
            yield first, second


def passages(documents: int = DOCUMENTS, folder: Path | None = None, every: int = DOCUMENTS_A_QUERY) -> Passages:
    """The first so many documents, and a query for one in `every` of them.

    Raises:
      DataNotFoundError: The text is not there.
      DataError: It has fewer paragraphs.
    """
    if folder is None:
        if not os.environ.get("JAXWHITEN_DATA_DIR"):
            raise DataNotFoundError("JAXWHITEN_DATA_DIR has to name the folder of the data: its text/enwiki is read.")
        folder = Path(os.environ["JAXWHITEN_DATA_DIR"], "text", "enwiki")
    files = corpus_files(folder)
    pairs = list(itertools.islice(sentence_pairs(Corpus(files)), documents))
    if len(pairs) < documents:
        raise DataError(f"{folder}: {len(pairs):,} paragraphs with two sentences, {documents:,} were asked for.")
    sources = np.arange(every // 2, documents, every)
    provenance = {
        "text": f"{folder.name}, {files[0].name} to {files[-1].name}",
        "documents": "first sentence of every second paragraph that has two sentences of 5 words or more",
        "queries": f"the second sentence of the same paragraph, for one document in {every}",
    }
    return Passages([first for first, _ in pairs], [pairs[i][1] for i in sources], sources, provenance)


def vectors(name: str, passages: Passages, cache: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Document and query vectors, float32, from the store where they are there.

    Args:
      name: A name of `ENCODERS`.
      found: From `passages`.
      cache: Folder of the store; by default the one of every program.
    """
    encoder = Encoder.from_pretrained(ENCODERS[name])
    store = EmbeddingStore(cache)
    queries = encoded(encoder, store, passages.queries, PART // DOCUMENTS_A_QUERY)
    return encoded(encoder, store, passages.documents), queries


def encoded(encoder: Encoder, store: EmbeddingStore, texts: list[str], size: int = PART) -> np.ndarray:
    """Vectors of texts, from the store where they are there, `size` texts at a time; progress is printed."""
    array = np.empty((len(texts), encoder.dimension), np.float32)
    clock = time.perf_counter()
    for start in range(0, len(texts), size):
        part = slice(start, start + size)
        array[part] = store.encode(encoder, texts[part], show_progress=False)
        finished = min(start + size, len(texts))
        print(f"{encoder.name}: {finished:,} of {len(texts):,}, {time.perf_counter() - clock:.0f} s", flush=True)
    return array


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--cache", type=Path, help="folder of the vectors; default: the store of every program")
    parser.add_argument("--encoders", nargs="*", choices=ENCODERS, default=list(ENCODERS))
    args = parser.parse_args()
    corpus = passages(args.documents)
    for name in args.encoders:
        vectors(name, corpus, args.cache)


if __name__ == "__main__":
    main()
