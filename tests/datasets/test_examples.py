"""Rows to train on: triplets of NLI, tables of the user's own, bad rows named or counted."""

import numpy as np
import pytest

from jaxwhiten.datasets import Examples, nli_triplets, read_table, text_examples
from jaxwhiten.datasets.examples import examples_of
from jaxwhiten.errors import DataError, InputError


def test_nli_triplets_need_both_sides():
    premise, hypothesis = ["p", "p", "p", "q", "q", "r"], ["e1", "c1", "e2", "n1", "e3", "c2"]
    found = nli_triplets(premise, hypothesis, np.array([0, 2, 0, 1, 0, -1], np.int8))
    assert list(zip(*found.columns.values(), strict=True)) == [("p", "e1", "c1"), ("p", "e2", "c1")]
    assert found.label is None
    assert found.skipped == 1


# --- tables ---------------------------------------------------------------------------------------------------------

ROWS = ["a\tb\tlabel\tscore", "x y\tz\tyes\t5", "u\tv\tno\t2.5"]


def table_examples(path, columns, label=None, classes=(), score_range=(0.0, 1.0), skip_bad_rows=False):
    wanted = {name: name for name in (*columns, *filter(None, [label]))}
    table = read_table(path, wanted, skip_bad_rows=skip_bad_rows)
    return examples_of(table, columns, label, classes, score_range, skip_bad_rows)


def write(folder, *more, rows=ROWS):
    path = folder / "rows.tsv"
    path.write_text("\n".join([*rows, *more]) + "\n")
    return path


def test_classes(tmp_path):
    found = table_examples(write(tmp_path), ("a", "b"), label="label", classes=("no", "yes"))
    assert found.columns == {"a": ["x y", "u"], "b": ["z", "v"]}
    assert found.label.tolist() == [1, 0]


def test_scores(tmp_path):
    found = table_examples(write(tmp_path), ("b", "a"), label="score", score_range=(0, 5))
    assert list(found.columns) == ["b", "a"]
    assert found.label.tolist() == [1.0, 0.5]


BAD = [
    ("\tz\tyes\t1", "'a' is empty"),
    ("x\tz\tmaybe\t1", "'label' is 'maybe', expected one of no, yes"),
]
BAD_SCORES = [
    ("x\tz\tyes\tnan", "'score' is 'nan', expected a number"),
    ("x\tz\tyes\t9", "'score' is '9', expected a number"),
]


@pytest.mark.parametrize(
    ("row", "message", "options"),
    [
        *((row, message, {"label": "label", "classes": ("no", "yes")}) for row, message in BAD),
        *((row, message, {"label": "score", "score_range": (0, 5)}) for row, message in BAD_SCORES),
    ],
)
def test_bad_rows_are_named_or_counted(tmp_path, row, message, options):
    path = write(tmp_path, row, "last\tone\tno\t1")
    with pytest.raises(DataError) as caught:
        table_examples(path, ("a", "b"), **options)
    assert f"{path}, line 4: " in str(caught.value)
    assert message in str(caught.value)
    found = table_examples(path, ("a", "b"), skip_bad_rows=True, **options)
    assert (len(found), found.skipped) == (3, 1)


# --- text files, and pairs held out ---------------------------------------------------------------------------------


def test_text_lines_and_their_sentences(tmp_path):
    (tmp_path / "a.txt").write_text("One day. Two e.g. three! 4 is next?\nOne day.\n\n  Last  \n")
    assert text_examples(tmp_path).columns == {"sentence": ["One day. Two e.g. three! 4 is next?", "One day.", "Last"]}


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (Examples({"one": ["a"], "two": ["b"]}), "Cannot hold out 1 of 1 rows.*Hold out none"),
        (Examples({"one": ["a", "b"]}), "at least two sentences"),
        (
            Examples({"one": ["a", "A"], "two": ["b", "c"]}, np.ones(2, np.float32)),
            "shared sentences .2 have 'a'",
        ),
    ],
)
def test_what_cannot_be_held_out(examples, message):
    with pytest.raises(InputError, match=message):
        examples.hold_out(0.5)
