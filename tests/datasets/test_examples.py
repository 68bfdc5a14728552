"""Rows to train on: triplets of NLI, scores, lines of text, and what cannot be held out."""

import numpy as np
import pytest

from jaxwhiten.datasets import Examples, text_examples
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.training import OBJECTIVES, read_rows


@pytest.mark.parametrize("score", ["nan", "9"])
def test_scores_out_of_their_range_are_named_or_counted(tmp_path, score):
    path = tmp_path / "rows.tsv"
    path.write_text(f"a\tb\tscore\nx y\tz\t5\nu\tv\t2.5\nx\tz\t{score}\nlast\tone\t1\n")
    with pytest.raises(DataError, match=f"line 4: 'score' is '{score}', expected a number"):
        read_rows(path, OBJECTIVES["cosent"], score_range=(0, 5))
    found = read_rows(path, OBJECTIVES["cosent"], score_range=(0, 5), skip_bad_rows=True)
    assert (found.label.tolist(), found.skipped) == ([1, 0.5, pytest.approx(0.2)], 1)


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
