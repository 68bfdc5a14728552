"""The sample that ships with the package; the folders are tested by task in `test_sts.py`."""

from importlib import resources

import numpy as np

from jaxwhiten.datasets import load_sts


def test_sample_is_large_varied_and_without_duplicates():
    task = load_sts("sts_sample")
    pairs = task.splits["test"]
    assert list(task.splits) == ["test"]
    assert len(pairs) >= 300
    genres, counts = np.unique(pairs.subset, return_counts=True)
    assert len(genres) == 5
    assert counts.min() >= 50
    grades, counts = np.unique(np.round(pairs.score), return_counts=True)
    assert grades.tolist() == [0, 1, 2, 3, 4, 5]
    assert counts.min() >= 0.08 * len(pairs)
    for genre in genres:
        scores = pairs.score[np.array(pairs.subset) == genre]
        assert scores.min() < 1
        assert scores.max() > 4
    assert len({frozenset(pair) for pair in zip(pairs.sentence1, pairs.sentence2, strict=True)}) == len(pairs)
    sentences = [" ".join(text.lower().split()) for text in pairs.sentence1 + pairs.sentence2]
    assert all(sentences)
    assert not any(a.lower() == b.lower() for a, b in zip(pairs.sentence1, pairs.sentence2, strict=True))


def test_sample_needs_no_folder_and_no_network(no_data):
    assert len(load_sts("sts_sample").splits["test"]) >= 300


def test_sample_lies_in_the_package():
    assert (resources.files("jaxwhiten.datasets") / "sts_sample.tsv").is_file()
