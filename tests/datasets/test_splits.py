"""No sentence is on both sides of a split, at every door that makes one; what connects the sides is left out."""

import numpy as np
import pytest

from jaxwhiten.datasets import Examples
from jaxwhiten.datasets.splits import independent, numbered, row_groups, sentence_key, split
from jaxwhiten.errors import InputError
from jaxwhiten.training import HeldOut, beside, hold_out

TEXTS = [f"Question {row}" for row in range(160)]


def both_ways():
    """Rows (a, b) and, in other spellings, (b, a)."""
    a, b = TEXTS[:80], TEXTS[80:]
    return {
        "one": [*a, *(f" {text.upper()} " for text in b)],
        "two": [*b, *(text.replace("Q", "\uff31") for text in a)],
    }


def sentences(examples):
    return {sentence_key(text) for column in examples.columns.values() for text in column}


def scores(n):
    return (np.arange(n) % 5 / 4).astype(np.float32)


def of_dev(examples):
    rows = np.arange(0, 160, 9)
    dev = HeldOut(
        Examples({name: [column[row] for row in rows] for name, column in examples.columns.items()}, scores(18))
    )
    return beside(examples, dev), dev.examples


DOORS = {
    "pairs": lambda columns: Examples(columns).hold_out(0.2, seed=3),
    "scores": lambda columns: Examples(columns, scores(160)).hold_out(0.2, seed=3),
    "classes": lambda columns: Examples(columns, np.arange(160, dtype=np.int32) % 2, ("no", "yes")).hold_out(0.2),
    "triplets": lambda columns: Examples(columns | {"three": TEXTS[::-1]}).hold_out(0.2, seed=3),
    "training": lambda columns: hold_out(Examples(columns, scores(160)), 0.2, 0, False),
    "dev": lambda columns: of_dev(Examples(columns)),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_no_sentence_of_what_is_scored_is_trained_on(door):
    kept, held_out = door(both_ways())
    held_out = held_out.examples if isinstance(held_out, HeldOut) else held_out
    assert sentences(kept).isdisjoint(sentences(held_out))
    assert 0 < len(held_out) < 80 < len(kept)


def test_the_share_is_reached_by_whole_groups():
    rows = [f"a {row}" for row in range(1000)], [f"b {row // 2}" for row in range(1000)]
    parts = split(rows, 0.25, seed=1)
    assert len(parts.held_out) == 250
    assert len(parts.train) == 750
    assert not np.array_equal(split(rows, 0.25, seed=2).held_out, parts.held_out)
    np.testing.assert_array_equal(split(rows, 0.25, seed=1).held_out, parts.held_out)


def test_a_large_group_stays_in_training():
    rows = [f"a {row}" for row in range(100)], ["all" if row < 70 else f"b {row}" for row in range(100)]
    for seed in range(20):
        parts = split(rows, 0.1, seed)
        assert (len(parts.held_out), len(parts.connecting)) == (10, 0)
        assert parts.held_out.min() >= 70


def test_rows_that_connect_everything_are_left_out():
    """Pairs of rows that share their first sentence; one of each pair has a sentence that many have."""
    first = [f"a {row // 2}" for row in range(400)]
    second = ["Yes." if row % 2 else f"b {row}" for row in range(400)]
    parts = split([first, second], 0.1)
    assert np.bincount(row_groups(numbered([first, second]))).tolist() == [400]
    assert (len(parts.held_out), len(parts.connecting), len(parts.train)) == (40, 40, 320)
    np.testing.assert_array_equal(parts.connecting, parts.held_out + 1)
    kept, _ = Examples({"a": first, "b": second}).hold_out(0.1)
    assert (len(kept), kept.skipped) == (320, 40)


@pytest.mark.parametrize("few", ["first", "second"])
def test_few_sentences_on_one_side_are_an_error_that_says_what_to_do(few):
    rows = [f"category {row % 4}" for row in range(200)], [f"b {row}" for row in range(200)]
    with pytest.raises(InputError, match=r"20 of 200 rows.*50 have 'category 0'.*held_out=0"):
        split(rows if few == "first" else rows[::-1], 0.1)


def test_rows_are_drawn_as_groups_unless_one_holds_nearly_all():
    assert independent([["a", "A", "b", "c"], list("defg")]).tolist() == [0, 0, 1, 2]
    assert independent([["a"] * 4, list("defg")]).tolist() == [0, 1, 2, 3]


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
