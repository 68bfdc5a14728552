"""Searches by name, for `eval.codes`, `eval.retrieval` and others.

`quora`: Quora's duplicate questions (Su et al. 2021, section 4.4), under Quora's terms of use (non-commercial).
`pydocs`: docstrings of Python's standard library.
`wikipedia-N`: the first sentences of the first N passages of text/enwiki, each found by the sentence that follows it.
`mrpc`: MRPC's second sentences, found by the first ones of paraphrases.
`snli`: SNLI's entailed hypotheses, found by their premises; captions of photographs, so a narrow corpus.
`sts`: the second sentences of the STS tasks' test pairs, found by the first ones if people score the pair 4 or more.
`templated`: sentences of one template, found by a paraphrase in another; narrower still, and generated here.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from eval.data import STS_TASKS, data_folder, load_nli, load_quora, load_sts, mrpc, read_quora
from eval.data.quora import COLUMNS
from eval.pydocs import load_pydocs, split_docstring
from jaxwhiten.datasets import Corpus, RetrievalData, corpus_files, from_pairs, read_header, read_own
from jaxwhiten.errors import DataNotFoundError, unknown_name

Row = tuple[str, str, str, str, bool]  # as `from_pairs` takes them
_WIKIPEDIA = ("text/enwiki", "enwiki")
_MIN_WORDS = 3
_SAME = 4.0  # pairs of at least this human score mean the same
_TEMPLATED = 3000
_WHO = "Anna Boris Carla Deniz Emil Farah Goran Hana Igor Julia Karim Lena Marco Nadia Oscar Petra Quentin Rosa Samir"
_WHAT = "apples books chairs dresses eggs flowers guitars hats lamps maps needles onions pens ropes shoes tables"
_WHERE = "Athens Berlin Cairo Dublin Geneva Helsinki Lima Madrid Nairobi Oslo Paris Quito Rome Sydney Tokyo Vienna"
_WHEN = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"


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


def _wikipedia(count: int, data_dir: str | None) -> RetrievalData:
    root = data_folder(data_dir)
    folders = []
    if root:
        folders = [root / name for name in _WIKIPEDIA if (root / name).is_dir()]
    if not folders:
        raise DataNotFoundError(
            f"wikipedia-{count}: no folder {_WIKIPEDIA[0]} in {root or 'a data folder'}. Set config.data_dir or"
            " $JAXWHITEN_DATA_DIR to a folder that holds it, one passage per line."
        )
    rows = itertools.islice(_neighbours(Corpus(corpus_files(folders[0]))), count)
    return from_pairs(f"wikipedia-{count}", rows)


def _neighbours(corpus: Corpus) -> Iterator[Row]:
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


def _sts(data_dir: str | None) -> RetrievalData:
    tests = [load_sts(name, data_dir).splits["test"] for name in STS_TASKS]
    return from_pairs(
        "sts",
        (
            (query, document, query, document, score >= _SAME)
            for test in tests
            for query, document, score in zip(test.sentence1, test.sentence2, test.score, strict=True)
        ),
    )


def _templated(data_dir: str | None) -> RetrievalData:
    """Who bought what, how many, where and when; every combination is another document."""
    rng = np.random.default_rng(0)
    words = [part.split() for part in (_WHO, _WHAT, _WHERE, _WHEN)]
    rows = []
    for _ in range(_TEMPLATED):
        count = rng.integers(2, 100)
        person, item, city, day = (rng.choice(part) for part in words)
        document = f"{person} bought {count} {item} in {city} on {day}."
        rows.append(
            (query := f"On {day}, a shop in {city} sold {count} {item} to {person}.", document, query, document)
        )
    return from_pairs("templated", ((*row, True) for row in rows))


SEARCHES: Mapping[str, Callable[[str | None], RetrievalData]] = {
    "quora": load_quora,
    "pydocs": lambda _: load_pydocs(),
    **{f"wikipedia-{count}": partial(_wikipedia, count) for count in (7000, 15000, 30000)},
    "mrpc": mrpc.search,
    "snli": _snli,
    "sts": _sts,
    "templated": _templated,
}
"""Retrieval data by name; each is called with the folder to look in."""
