"""Training examples that a config names: NLI rows, scored pairs or a file, in the forms that objectives take."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from configs.settings import Data
from eval.data import NLIRows, load_nli, load_sts
from jaxwhiten import training
from jaxwhiten.datasets import NLI_LABELS, Examples, Pairs, nli_triplets, split_name, text_examples

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")


def load_examples(data: Data, objective: training.Objective) -> Examples:
    """The rows that `config.data` names, in the form that the objective takes."""
    single = objective.columns == (1, 1)
    labeled = objective.label in ("class", "score")
    if data.file and not data.columns and is_text(data.file):
        lines = text_examples(data.file, skip_bad_rows=data.skip_bad_rows)
        return sentences(lines) if data.split_sentences else lines
    if data.file:
        return training.read_rows(
            data.file,
            objective,
            columns=data.columns,
            label=(data.label or None) if labeled else None,
            classes=data.classes if objective.label == "class" else (),
            score_range=data.score_range,
            skip_bad_rows=data.skip_bad_rows,
        )
    if data.name == "nli":
        rows = load_nli(
            data.folder or None,
            sources=data.sources or None,
            exclude_overlap=data.exclude_overlap,
            skip_bad_rows=data.skip_bad_rows,
        )
        print(rows.summary())
        if single:
            return distinct(rows.premise, rows.hypothesis)
        if objective.columns == (2, 2):
            return nli_pairs(rows)
        return nli_triplets(rows.premise, rows.hypothesis, rows.label)
    pairs = load_sts(data.name, data.folder or None).splits["train"]
    if single:
        return distinct(pairs.sentence1, pairs.sentence2)
    return sts_pairs(pairs, *data.score_range)


def is_text(file: str) -> bool:
    """Whether a file, a folder or a pattern with `*` has lines of text, not a table."""
    return Path(file).is_dir() or "*" in file or split_name(file)[1] == ".txt"


def sentences(lines: Examples) -> Examples:
    """The distinct sentences of lines, which end with `.`, `!` or `?` if a capital letter or a digit follows."""
    parts = itertools.chain.from_iterable(map(_SENTENCE_END.split, lines.columns["sentence"]))
    return dataclasses.replace(lines, columns={"sentence": list(dict.fromkeys(parts))})


def distinct(*columns: Sequence[str]) -> Examples:
    """The different sentences of all columns, as one column."""
    return Examples({"sentence": list(dict.fromkeys(itertools.chain(*columns)))})


def nli_pairs(rows: NLIRows) -> Examples:
    """Premise and hypothesis with their class, without rows that have none."""
    labeled = np.flatnonzero(rows.label >= 0).tolist()
    columns = {"premise": [rows.premise[i] for i in labeled], "hypothesis": [rows.hypothesis[i] for i in labeled]}
    return Examples(columns, rows.label[labeled].astype(np.int32), NLI_LABELS, len(rows) - len(labeled))


def sts_pairs(pairs: Pairs, low: int | float = 0.0, high: int | float = 5.0) -> Examples:
    """Scored pairs; the gold scores `low` and `high` become 0 and 1."""
    score = ((pairs.score - low) / (high - low)).astype(np.float32)
    return Examples({"sentence1": pairs.sentence1, "sentence2": pairs.sentence2}, score)


def drawn(examples: Examples, count: int, seed: int) -> Examples:
    """At most `count` rows, drawn without replacement and kept in their order."""
    if count >= len(examples):
        return examples
    return examples.of(np.sort(np.random.default_rng(seed).choice(len(examples), count, replace=False)))
