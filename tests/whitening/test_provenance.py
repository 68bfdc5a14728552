"""A whitening and vectors meet: what each says of how the vectors were made has to agree."""

import pytest

from jaxwhiten.errors import MismatchError
from jaxwhiten.whitening import check_provenance

FITTED = {"model": "a/b", "fingerprint": "f1", "pooling": "mean", "max_length": 64, "dtype": "float32", "n": 400}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pooling": "auto", "max_length": 256},
            r"pooling mean, max_length 64; here they have pooling auto, max_length 256",
        ),
        ({"fingerprint": "f2"}, "other weights or another head of the same name"),
        ({"fingerprint": "f2", "model": "c/d"}, "of model a/b; here they have model c/d"),
        ({"pooling": "cls"}, "W was fitted on vectors of pooling mean; here they have pooling cls"),
    ],
)
def test_what_differs_is_said_in_words(changes, message):
    with pytest.raises(MismatchError, match=message) as refused:
        check_provenance("W", FITTED, {**FITTED, **changes})
    assert "f1" not in str(refused.value)


def test_another_length_is_a_warning():
    with pytest.warns(UserWarning, match="up to 64 tokens, here they have up to 32"):
        check_provenance("W", FITTED, {**FITTED, "max_length": 32})


def test_what_is_not_said_cannot_differ():
    check_provenance("W", {"model": None, "pooling": None}, FITTED)
    check_provenance("W", FITTED, {})
    check_provenance("W", FITTED, FITTED | {"dtype": "bfloat16", "n": 3})
