"""Rows as examples: the label and the columns are found, or asked for; mined negatives against a plain search."""

import math

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.datasets import Examples
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.training import OBJECTIVES, read_rows
from jaxwhiten.training.rows import mine_negatives, with_negatives

ROWS = [("a b", "c d", 1.0), ("e f", "g h", 3.0), ("i j", "k l", 5.0)]
NAMES = ("one", "two", "score")
COLUMNS = dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True))


@pytest.mark.parametrize("rows", [iter(ROWS), COLUMNS], ids=["rows", "columns"])
def test_scores_are_mapped_to_0_and_1(rows):
    found = read_rows(rows, OBJECTIVES["cosent"])
    assert list(found.columns.values()) == [COLUMNS["one"], COLUMNS["two"]]
    np.testing.assert_array_equal(found.label, np.array([0.0, 0.5, 1.0], np.float32))
    given = read_rows(ROWS, OBJECTIVES["cosine"], score_range=(0, 10))
    np.testing.assert_allclose(given.label, [0.1, 0.3, 0.5])
    assert list(read_rows(COLUMNS, OBJECTIVES["mnr"], columns=("two", "one")).columns) == ["two", "one"]
    assert read_rows(found, OBJECTIVES["mnr"]) is found


def test_classes_in_the_order_of_similarity():
    rows = [("a", "b", "neutral"), ("c", "d", "entailment"), ("e", "f", "contradiction")]
    found = read_rows(rows, OBJECTIVES["softmax"])
    assert found.classes == ("contradiction", "neutral", "entailment")
    assert found.label.tolist() == [1, 2, 0]
    other = read_rows([("a", "b", "x"), ("c", "d", "w")], OBJECTIVES["softmax"], classes=("x", "w"))
    assert (other.classes, other.label.tolist()) == (("x", "w"), [0, 1])


NLI = ("entailment", "neutral", "contradiction")


@pytest.mark.parametrize(("absent", "classes"), [("-", ()), ("-1", NLI[::-1]), ("", ()), (-1, ())])
def test_rows_without_an_agreed_class_are_left_out(capsys, absent, classes):
    rows = [(f"a man {row}", f"a dog {row}", label) for row, label in enumerate((absent, *NLI, absent))]
    found = read_rows(rows, OBJECTIVES["softmax"], classes=classes)
    assert (found.classes, found.label.tolist(), found.skipped) == (NLI[::-1], [2, 1, 0], 2)
    assert found.columns["column1"] == ["a man 1", "a man 2", "a man 3"]
    assert "note: the rows: left out 2 rows without a class that annotators agreed on\n" in capsys.readouterr().err
    triplets = read_rows([("p", *row[1:]) for row in rows], OBJECTIVES["mnr"], label="column3")
    assert (triplets.columns["negative"], triplets.skipped) == (["a dog 3"], 2)
    assert "2 rows without a class" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "classes"), [((-1, 0, 1, 2), ("0", "1", "2")), ((-1, 0, 1), ("-1", "0", "1")), ("-xy", ("-", "x", "y"))]
)
def test_only_labels_of_nli_may_be_absent(capsys, labels, classes):
    rows = [(f"a man {row}", "a dog", label) for row, label in enumerate(labels)]
    assert read_rows(rows, OBJECTIVES["softmax"]).classes == classes
    assert f"classes {', '.join(classes)}; specify `classes`" in capsys.readouterr().err, "their order is not known"


def test_classes_of_nli_give_triplets():
    rows = [("p", "yes", "entailment"), ("p", "no", "contradiction"), ("p", "so", "neutral"), ("q", "y", "entailment")]
    found = read_rows(rows, OBJECTIVES["mnr"], label="column3")
    assert list(zip(*found.columns.values(), strict=True)) == [("p", "yes", "no")]


def test_false_negatives_are_left_out():
    found = read_rows([("a", "b", "c"), ("A ", " C", "d"), ("x", "y", "X")], OBJECTIVES["mnr"])
    assert (len(found), found.skipped) == (1, 2)


def test_sentences_of_a_text_file(tmp_path):
    (tmp_path / "text.txt").write_text("One line.\nAnother.\n")
    assert read_rows(tmp_path / "text.txt", OBJECTIVES["simcse"]).columns == {"sentence": ["One line.", "Another."]}
    assert read_rows(["a", "b"], OBJECTIVES["simcse"]).columns == {"column1": ["a", "b"]}


PAIR = {"sentence1": "a", "sentence2": "b", "score": 1}
MISTAKES = {
    "null": ([("a", None)], "mnr", {}, "row 0: 'column2' is null"),
    "empty": ([("a", "")], "mnr", {}, "'column2' is empty"),
    "which columns": ([dict.fromkeys("wxyz", "a")], "mnr", {}, "w, x, y, z"),
    "a typo": (ROWS, "cosent", {"columns": ("column1", "colum2")}, "'colum2'"),
    "no score": ([("a", "b")], "cosent", {}, "`label`"),
    "one score": ([("a", "b", 1), ("c", "d", 1)], "cosent", {}, "all equal"),
    "another class": ([("a", "b", "x")], "softmax", {"classes": ("y", "z")}, "one of y, z"),
    "no class of NLI": ([("a", "b", "x")], "mnr", {"label": "column3"}, "one of entailment"),
    "no triplet": ([("a", "b", "entailment")], "mnr", {"label": "column3"}, "no premise"),
    "another objective": (ROWS, "mnr", {}, "the objective cosent"),
    "a label": ([("a", "b", "entailment")], "mnr", {}, "the label 'column3'"),
    "a score": ([PAIR], "mnr", {}, "'score' has no sentences"),
    "a score beyond float32": ([("a", "b", 0), ("c", "d", 1e39), ("e", "f", 1)], "cosine", {}, "row 1: .*column3"),
    "an endless range": (ROWS, "cosine", {"score_range": (0, math.inf)}, "score_range"),
    "an empty range": (ROWS, "cosine", {"score_range": (1, 1)}, "score_range"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    rows, objective, more, words = MISTAKES[mistake]
    with pytest.raises((InputError, DataError), match=words):
        read_rows(rows, OBJECTIVES[objective], **more)


def test_invalid_rows_may_be_skipped():
    found = read_rows([("a", "b"), ("c", " ")], OBJECTIVES["mnr"], skip_bad_rows=True)
    assert (len(found), found.skipped) == (1, 1)
    found = read_rows([("a", "b", 1), ("c", "d", "x"), ("e", "f", 3)], OBJECTIVES["cosent"], skip_bad_rows=True)
    assert (found.label.tolist(), found.skipped) == ([0, 1], 1)
    with pytest.raises(InputError, match=r"Row 1: .*float32"):
        Examples({"a": ["a", "b"], "b": ["c", "d"]}, np.array([0.0, 1e39]))


@pytest.mark.parametrize("score", ["nan", "9"])
def test_scores_out_of_their_range_are_named_or_counted(tmp_path, score):
    path = tmp_path / "rows.tsv"
    path.write_text(f"a\tb\tscore\nx y\tz\t5\nu\tv\t2.5\nx\tz\t{score}\nlast\tone\t1\n")
    with pytest.raises(DataError, match=f"line 4: 'score' is '{score}', expected a number"):
        read_rows(path, OBJECTIVES["cosent"], score_range=(0, 5))
    found = read_rows(path, OBJECTIVES["cosent"], score_range=(0, 5), skip_bad_rows=True)
    assert (found.label.tolist(), found.skipped) == ([1, 0.5, pytest.approx(0.2)], 1)


# --- mined negatives -------------------------------------------------------------------------------------------------


class Angles(Encoder):
    """Texts are angles in degrees: near in number, near as vectors."""

    def __init__(self):
        pass

    def encode(self, texts):
        angles = np.radians([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_negatives_are_near_and_not_linked_by_a_chain():
    first, second = ["0", "0", "90", "3"], ["1", "2", "91", "2"]  # 0-1, 0-2-3: one chain
    found = mine_negatives(Angles(), [*first, "170"], [*second, "171"], count=1, depth=1)
    assert dict(zip(*found, strict=True)) == {"0": "91", "3": "91", "90": "171", "170": "91"}
    owners, negatives = mine_negatives(Angles(), first, second, count=5, depth=5)
    assert sorted(zip(owners, negatives, strict=True)) == [("0", "91"), ("3", "91"), ("90", "1"), ("90", "2")]


def test_pairs_that_a_chain_links_have_no_negatives():
    pairs = Examples({"anchor": ["0", "1"], "positive": ["1", "2"]})
    with pytest.raises(DataError, match="negative"):
        with_negatives(pairs, [], [])
