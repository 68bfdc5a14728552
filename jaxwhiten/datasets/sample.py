"""`sts_sample`: the scored pairs that ship with the package. A sample for demo and tests, not a benchmark."""

from __future__ import annotations

from importlib import resources

import numpy as np

from jaxwhiten.datasets.protocol import SAMPLE, Pairs, STSTask
from jaxwhiten.datasets.tables import read_table
from jaxwhiten.errors import DataError


def load_sample() -> STSTask:
    """Loads the sample: one split `test`, whose subsets are its genres.

    Returns:
      The task.

    Raises:
      DataError: The file of the installed package is damaged.
    """
    names = ("genre", "score", "sentence1", "sentence2")
    with resources.as_file(resources.files("jaxwhiten.datasets") / f"{SAMPLE}.tsv") as path:
        table = read_table(path, dict(zip(names, names, strict=True)))
    try:
        score = np.array(table["score"], dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{table.path}: a score is not a number ({error}). Install jaxwhiten again.") from error
    if not ((score >= 0) & (score <= 5)).all():
        raise DataError(f"{table.path}: a score is outside 0 to 5. Install jaxwhiten again.")
    return STSTask(SAMPLE, {"test": Pairs(table["sentence1"], table["sentence2"], score, table["genre"])})
