"""Rows in every container give the same examples; the label and the columns are found, or asked for."""

import json

import numpy as np
import pytest

from jaxwhiten.errors import DataError, InputError
from jaxwhiten.training import OBJECTIVES, read_rows

ROWS = [("a b", "c d", 1.0), ("e f", "g h", 3.0), ("i j", "k l", 5.0)]
NAMES = ("one", "two", "score")
COLUMNS = dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True))


def containers(folder):
    (folder / "rows.tsv").write_text("\n".join("\t".join(map(str, row)) for row in [NAMES, *ROWS]))
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(dict(zip(NAMES, row, strict=True))) for row in ROWS))
    return [folder / "rows.tsv", str(folder / "rows.jsonl"), ROWS, iter(ROWS), COLUMNS]


def test_every_container_gives_the_same_examples(tmp_path):
    for rows in containers(tmp_path):
        found = read_rows(rows, OBJECTIVES["cosent"])
        assert list(found.columns.values()) == [COLUMNS["one"], COLUMNS["two"]]
        np.testing.assert_array_equal(found.label, np.array([0.0, 0.5, 1.0], np.float32))
    assert list(read_rows(COLUMNS, OBJECTIVES["mnr"], columns=("two", "one")).columns) == ["two", "one"]
    assert read_rows(found, OBJECTIVES["mnr"]) is found


def test_the_range_of_scores_may_be_given():
    found = read_rows(ROWS, OBJECTIVES["cosine"], score_range=(0, 10))
    np.testing.assert_allclose(found.label, [0.1, 0.3, 0.5])


def test_classes_in_the_order_of_similarity():
    rows = [("a", "b", "neutral"), ("c", "d", "entailment"), ("e", "f", "contradiction")]
    found = read_rows(rows, OBJECTIVES["softmax"])
    assert found.classes == ("contradiction", "neutral", "entailment")
    assert found.label.tolist() == [1, 2, 0]
    other = read_rows([("a", "b", "x"), ("c", "d", "w")], OBJECTIVES["softmax"], classes=("x", "w"))
    assert (other.classes, other.label.tolist()) == (("x", "w"), [0, 1])


NLI = ("entailment", "neutral", "contradiction")


@pytest.mark.parametrize("absent", ["-", "-1", "", -1])
@pytest.mark.parametrize("classes", [(), NLI[::-1]])
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
    names = ("premise", "hypothesis", "label")
    found = read_rows([dict(zip(names, row, strict=True)) for row in rows], OBJECTIVES["mnr"], label="label")
    assert list(zip(*found.columns.values(), strict=True)) == [("p", "yes", "no")]


def test_usual_names_among_many_and_false_negatives():
    row = {"id": 7, "question": "a", "answer": "b", "source": "c", "date": "d"}
    assert list(read_rows([row], OBJECTIVES["mnr"]).columns) == ["question", "answer"]
    found = read_rows([("a", "b", "c"), ("A ", " C", "d"), ("x", "y", "X")], OBJECTIVES["mnr"])
    assert (len(found), found.skipped) == (1, 2)


def test_columns_that_are_no_sentences_may_be_left_out():
    row = {"url": "u", **dict(zip(("query", "positive", "negative_1", "negative_2"), "abcd", strict=True))}
    assert list(read_rows([row], OBJECTIVES["mnr"]).columns) == ["query", "positive", "negative_1", "negative_2"]
    row = {"id": "q7", "question": "a", "answer": "b"}
    assert list(read_rows([row], OBJECTIVES["mnr"]).columns) == ["question", "answer"]
    rows = [{"sentence1": "a", "sentence2": "b", "score": 5}]
    assert read_rows(rows, OBJECTIVES["mnr"], columns=("sentence1", "sentence2")).columns["sentence2"] == ["b"]
    assert read_rows([{"text": "a", "label": 1}], OBJECTIVES["simcse"]).columns == {"text": ["a"]}


def test_sentences_of_a_text_file(tmp_path):
    (tmp_path / "text.txt").write_text("One line.\nAnother.\n")
    assert read_rows(tmp_path / "text.txt", OBJECTIVES["simcse"]).columns == {"sentence": ["One line.", "Another."]}
    assert read_rows(["a", "b"], OBJECTIVES["simcse"]).columns == {"column1": ["a", "b"]}


@pytest.mark.parametrize(
    ("rows", "objective", "more", "message"),
    [
        ([("a", None)], "mnr", {}, "row 0: 'column2' is null"),
        ([("a", "")], "mnr", {}, "'column2' is empty"),
        (
            [{"w": "a", "x": "b", "y": "c", "z": "d"}],
            "mnr",
            {},
            "in the order anchors, positives, negatives; there are w, x, y, z",
        ),
        (ROWS, "cosent", {"columns": ("column1", "colum2")}, "no column 'colum2'"),
        ([("a", "b")], "cosent", {}, "the column of the score with `label`"),
        ([("a", "b", 1), ("c", "d", 1)], "cosent", {}, "all equal"),
        ([("a", "b", "x")], "softmax", {"classes": ("y", "z")}, "'column3' is 'x', expected one of y, z"),
        ([("a", "b", "x")], "mnr", {"label": "column3"}, "'column3' is 'x', expected one of entailment"),
        ([("a", "b", "entailment")], "mnr", {"label": "column3"}, "no premise has both"),
        (ROWS, "mnr", {}, "'column3' has no sentences. Use the objective cosent"),
        (ROWS, "triplet", {}, "'column3' has no sentences"),
        ([("a", "b", "entailment")], "mnr", {}, "mnr with the label 'column3'"),
        ([{"sentence1": "a", "sentence2": "b", "score": 1}], "mnr", {}, "'score' has no sentences"),
        ([{"id": 1, "query": "a", "document": "b", "date": "c", "label": 0}], "mnr", {}, "'label' has no sentences"),
    ],
)
def test_mistakes_are_named(rows, objective, more, message):
    with pytest.raises((InputError, DataError), match=message):
        read_rows(rows, OBJECTIVES[objective], **more)


def test_invalid_rows_may_be_skipped():
    found = read_rows([("a", "b"), ("c", " ")], OBJECTIVES["mnr"], skip_bad_rows=True)
    assert (len(found), found.skipped) == (1, 1)
    found = read_rows([("a", "b", 1), ("c", "d", "x"), ("e", "f", 3)], OBJECTIVES["cosent"], skip_bad_rows=True)
    assert (found.label.tolist(), found.skipped) == ([0, 1], 1)
