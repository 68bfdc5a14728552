"""The sample that ships with the package."""

import numpy as np
import pytest

from jaxwhiten.datasets import load_sts
from jaxwhiten.errors import InputError


def test_sample_is_large_varied_and_without_duplicates():
    task = load_sts("sts_sample")
    pairs = task.splits["test"]
    assert list(task.splits) == ["test"]
    assert len(pairs) >= 300
    genres, counts = np.unique(pairs.subset, return_counts=True)
    assert len(genres) == 5
    assert counts.min() >= 50
    grades, counts = np.unique(np.round(pairs.score), return_counts=True)
    assert (grades.tolist(), counts.min() >= 0.08 * len(pairs)) == ([0, 1, 2, 3, 4, 5], True)
    assert len({frozenset(pair) for pair in zip(pairs.sentence1, pairs.sentence2, strict=True)}) == len(pairs)
    assert all(map(str.strip, pairs.sentence1 + pairs.sentence2))


def test_another_name_is_told_where_it_is_read():
    with pytest.raises(InputError, match=r"'STS12'.*eval\.data"):
        load_sts("STS12")
