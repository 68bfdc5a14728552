"""Searches by name, for `eval.codes`, `eval.retrieval` and others.

`quora`: Quora's duplicate questions (Su et al. 2021, section 4.4), under Quora's terms of use (non-commercial).
`pydocs`: docstrings of Python's standard library.
`wikipedia-N`: the first sentences of the first N passages of text/enwiki, each found by the sentence that follows it.
`mrpc`: MRPC's second sentences, found by the first ones of paraphrases.
`snli`: SNLI's entailed hypotheses, found by their premises; captions of photographs, so a narrow corpus.
`rte`: the texts of RTE-1 to 3, of news, each found by the statements that it entails.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from eval.data import data_folder, load_nli, load_quora, mrpc, read_quora
from eval.data.quora import COLUMNS
from eval.pydocs import load_pydocs, split_docstring
from jaxwhiten.datasets import Corpus, RetrievalData, corpus_files, from_pairs, read_header, read_own
from jaxwhiten.errors import DataNotFoundError, unknown_name

Row = tuple[str, str, str, str, bool]  # as `from_pairs` takes them
_WIKIPEDIA = ("text/enwiki", "enwiki")
_MIN_WORDS = 3


def load_search(name: str, data_dir: str | None) -> RetrievalData:
    """One of `SEARCHES`, a folder or file of `read_own`, or a file in Quora's columns.

    Raises:
      DataNotFoundError: The data is not on this machine and cannot be downloaded.
    """
    if name in SEARCHES:
        return SEARCHES[name](data_dir)
    if Path(name).is_file() and set(COLUMNS[1:]) <= {*read_header(name)}:
        return read_quora(name)
    if Path(name).exists():
        return read_own(name)
    if os.sep in name or "." in name:
        raise DataNotFoundError(
            f"{name}: no such file; expected a BEIR folder, a table of query and document, or Quora's columns."
        )
    raise unknown_name("retrieval data set (or file)", name, SEARCHES)


def wikipedia(name: str, data_dir: str | None) -> Corpus:
    """The passages of Wikipedia, for a search or benchmark of that name.

    Raises:
      DataNotFoundError: They are not on this machine.
    """
    root = data_folder(data_dir)
    folders = []
    if root:
        folders = [root / name for name in _WIKIPEDIA if (root / name).is_dir()]
    if not folders:
        raise DataNotFoundError(
            f"{name}: no folder {_WIKIPEDIA[0]} in {root or 'a data folder'}. Set config.data_dir or"
            " $JAXWHITEN_DATA_DIR to a folder that holds it, one passage per line."
        )
    return Corpus(corpus_files(folders[0]))


def _wikipedia(count: int, data_dir: str | None) -> RetrievalData:
    name = f"wikipedia-{count}"
    return from_pairs(name, itertools.islice(_neighbors(wikipedia(name, data_dir)), count))


def _neighbors(corpus: Corpus) -> Iterator[Row]:
    """The first two sentences of each passage whose first two sentences have words; the first is the document."""
    for passage in corpus.passages():
        first, rest = split_docstring(passage)
        second, _ = split_docstring(rest)
        if min(len(re.findall(r"\w+", text)) for text in (first, second)) >= _MIN_WORDS:
            yield second, first, second, first, True


def _snli(data_dir: str | None) -> RetrievalData:
    nli = load_nli(data_dir, sources="snli_dev_test")
    entailed = zip(nli.premise, nli.hypothesis, nli.label == 0, strict=True)
    return from_pairs("snli", ((query, document, query, document, True) for query, document, yes in entailed if yes))


def _rte(data_dir: str | None) -> RetrievalData:
    nli = load_nli(data_dir, sources="rte123/rte123", two_way="keep")
    rows = zip(nli.hypothesis, nli.premise, nli.hypothesis, nli.premise, nli.label == 0, strict=True)
    return from_pairs("rte", rows)


SEARCHES: Mapping[str, Callable[[str | None], RetrievalData]] = {
    "quora": load_quora,
    "pydocs": lambda _: load_pydocs(),
    "wikipedia-7000": partial(_wikipedia, 7000),
    "mrpc": mrpc.search,
    "snli": _snli,
    "rte": _rte,
}
"""Retrieval data by name; each is called with the folder to look in."""
