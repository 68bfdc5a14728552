"""The classes of natural language inference, as files name them.

References:
  Bowman et al. 2015 (SNLI); Williams et al. 2018 (MultiNLI).
"""

from __future__ import annotations

from collections.abc import Collection

LABELS = ("entailment", "neutral", "contradiction")
NUMBERS = ("0", "1", "2")  # in the order of the hub's data sets, which is the order of LABELS
ABSENT = ("-", "-1", "")  # of rows on whose class annotators did not agree


def nli_classes(labels: Collection[str]) -> tuple[str, ...]:
    """The classes in the order of `LABELS` as these labels write them; none if they are other classes.

    >>> nli_classes(["contradiction", "-"]), nli_classes(["2", "0"])
    (('entailment', 'neutral', 'contradiction'), ('0', '1', '2'))
    >>> nli_classes(["1", "0"])  # which may be any classes
    ()
    """
    present = {*labels} - {*ABSENT}
    if present and present <= {*LABELS}:
        return LABELS
    if "2" in present and present <= {*NUMBERS}:
        return NUMBERS
    return ()
