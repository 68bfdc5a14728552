"""The classes of natural language inference, as files name them.

References:
  Bowman et al. 2015 (SNLI); Williams et al. 2018 (MultiNLI).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from jaxwhiten.datasets.tables import Table
from jaxwhiten.errors import DataError
from jaxwhiten.types import Int8

LABELS = ("entailment", "neutral", "contradiction")

# Integer labels follow the order of the hub's data sets, which is the order of LABELS.
_TWO_CLASSES = -1
NO_CLASS = -2
_UNKNOWN = -3
_CODES: dict[Any, int] = {name: code for code, name in enumerate(LABELS)}
_CODES |= dict.fromkeys(("not_entailment", "non_entailment", "not entailment", "non-entailment"), _TWO_CLASSES)
_CODES |= {name.capitalize(): code for name, code in _CODES.items()}
_CODES |= {code: code for code in range(3)} | {str(code): code for code in range(3)}
_CODES |= dict.fromkeys(("-", "-1", "", -1), NO_CLASS)


def label_codes(table: Table, labels: Sequence[str | int | float], skip_bad_rows: bool) -> Int8[np.ndarray, " n"]:
    """Numbers in `LABELS`; -1 for "not entailment", -2 for rows without an agreed label, -3 for unknown labels.

    >>> label_codes(read_table("pairs.tsv"), ["entailment", "contradiction"], skip_bad_rows=False)
    array([0, 2], dtype=int8)
    """
    codes = np.array(
        [_UNKNOWN if isinstance(label, bool) else _CODES.get(label, _UNKNOWN) for label in labels], dtype=np.int8
    )
    if not skip_bad_rows and (codes == _UNKNOWN).any():
        row = int(np.argmax(codes == _UNKNOWN))
        raise DataError(f"{table.where(row)}: unknown label {str(labels[row])[:40]!r}; known: {', '.join(LABELS)}.")
    return codes


def no_class(labels: Collection[str]) -> set[str]:
    """The labels of rows on whose class annotators did not agree, if the labels are classes of NLI; else none.

    >>> sorted(no_class(["entailment", "-"])), no_class(["1", "0", "-1"])
    (['', '-', '-1'], set())
    """
    absent = {label for label, code in _CODES.items() if code == NO_CLASS and isinstance(label, str)}
    classes = set(labels) - absent
    numbered = not classes.isdisjoint(("0", "1"))  # two of which may be any classes
    if classes and classes <= _CODES.keys() and (not numbered or "2" in classes):
        return absent
    return set()
