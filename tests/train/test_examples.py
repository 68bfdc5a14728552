"""NLI rows and scored pairs as rows to train on."""

import numpy as np
import pytest

from eval.data import NLIRows
from jaxwhiten.datasets import Examples, Pairs
from train.examples import distinct, drawn, nli_pairs, sts_pairs


def test_nli_pairs_have_classes():
    label = np.array([0, 2, 0, 1, 0, -1], np.int8)
    examples = nli_pairs(NLIRows(list("pppqqr"), list("abcdef"), label, ()))
    assert list(examples.columns) == ["premise", "hypothesis"]
    assert examples.label.tolist() == [0, 2, 0, 1, 0]
    assert examples.label.dtype == np.int32
    assert (examples.label_kind, examples.skipped, len(examples)) == ("class", 1, 5)
    assert examples.classes == ("entailment", "neutral", "contradiction")


def test_sentences_are_distinct():
    assert distinct(["p", "p", "q"], ["a", "q", "b"]).columns == {"sentence": ["p", "q", "a", "b"]}


def test_sts_scores_are_scaled():
    pairs = Pairs(["a", "b"], ["c", "d"], np.array([1.0, 5.0]), ["x", "x"])
    assert sts_pairs(pairs).label.tolist() == pytest.approx([0.2, 1.0])
    assert sts_pairs(pairs, 1.0).label.tolist() == [0.0, 1.0]


def test_rows_are_drawn_without_replacement():
    rows = Examples({"one": [str(i) for i in range(50)], "two": ["x"] * 50}, np.arange(50, dtype=np.float32) / 50)
    taken = drawn(rows, 20, 3)
    assert len(taken) == len(set(taken.columns["one"])) == 20
    for text, score in zip(taken.columns["one"], taken.label, strict=True):
        assert score == pytest.approx(int(text) / 50)
    assert drawn(rows, 99, 0).columns == rows.columns
