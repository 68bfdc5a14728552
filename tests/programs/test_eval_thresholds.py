"""Thresholds of float32 used on codes: the program beside the plain definitions."""

import numpy as np
import pytest

from eval.runs import Record, Run
from eval.thresholds import Compared, compared, groups, thresholds_table
from jaxwhiten import normalize

N, D = 300, 24


@pytest.fixture
def sides():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(N, D)).astype(np.float32)
    return first, first + 0.5 * rng.normal(size=(N, D)).astype(np.float32)


def test_questions_that_pairs_connect_are_equal():
    first, second = groups(["a", "b", "x"], ["b", "c", "y"])
    assert first[0] == second[0] == first[1] == second[1]
    assert first[2] == second[2] != first[0]


def test_precision_and_recall_are_those_of_all_pairs(sides):
    queries, documents = map(normalize, sides)
    number = np.arange(N) // 2  # questions by twos
    compared = Compared(queries, documents, (number, number))
    scores, same = queries @ documents.T, number[:, None] == number
    for precision in (0.5, 0.9):
        least = compared.threshold(precision)
        expected = {
            score: same[scores >= score].mean() for score in np.sort(scores[scores >= 0.5]) if score >= least - 0.05
        }
        assert least == min(score for score, right in expected.items() if right >= precision)
        right = same[scores >= np.float32(least)]
        assert compared.judged(least) == pytest.approx({"precision": right.mean(), "recall": right.sum() / same.sum()})


def test_the_table_shows_every_size(sides):
    number = np.arange(N)
    rows = compared(*sides, (number, number), [4, 12], 0.9)
    assert [row["bytes"] for row in rows] == [None, 4, 12]
    assert rows[0]["equal_99"] == 0
    assert rows[1]["equal_median"] > rows[2]["equal_median"] > 0
    assert all(row["own"]["precision"] > 0.8 for row in rows)
    assert len(thresholds_table(Run(Record(), rows)).rows) == 3
