"""Errors say what, where and what to do."""

import contextlib
import gc
import json
import weakref

import pytest

from jaxwhiten import errors
from jaxwhiten.errors import DataError, InputError, turning
from jaxwhiten.options import Rule, check_options


def test_every_error_is_one_of_ours_with_an_exit_code():
    for name in dir(errors):
        value = getattr(errors, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, errors.JaxwhitenError), name
            assert value.exit_code in (1, 2)


def test_a_typo_is_answered_with_the_nearest_names():
    message = str(errors.unknown_name("pooling", "maen", ["mean", "max", "cls"]))
    assert "Did you mean 'mean'" in message
    assert "cls, max, mean" in message
    assert "Did you mean" not in str(errors.unknown_name("pooling", "zzzzz", ["mean"]))
    assert str(errors.unknown_name("parameter", "bytes", [])) == "Unknown parameter 'bytes'. There is none."


def test_not_fitted_is_scikit_learns_too():
    exceptions = pytest.importorskip("sklearn.exceptions")
    error = errors.not_fitted(object())
    assert isinstance(error, errors.NotFittedError)
    assert isinstance(error, exceptions.NotFittedError)


def test_missing_dependency_names_the_extra():
    with pytest.raises(errors.MissingDependencyError, match=r"Searching needs the package faiss-x.*jaxwhiten\[cpu\]"):
        errors.optional("no_such_module", "cpu", "Searching", "faiss-x")
    assert errors.optional("json", "cpu", "Searching") is json


def test_a_turned_error_does_not_keep_what_its_callers_held():
    class Held:
        pass

    def read():
        held.append(weakref.ref(local := Held()))
        with contextlib.suppress(DataError), turning(DataError, "x.npy: not readable.", ValueError):
            float("two")
        return local

    held = []
    gc.disable()
    try:
        read()
        assert held[0]() is None
    finally:
        gc.enable()


RULES = (
    Rule(("add", "merge"), "Expected one change, got {given}.", most=1),
    Rule(("gamma", "bytes"), "{beside} fixes {given} of {index}.", beside=("add", "merge")),
    Rule(("keep",), "`keep` requires `into`.", without=("into",)),
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add": True, "merge": True}, "Expected one change, got `add`, `merge`."),
        ({"merge": True, "bytes": 0, "gamma": 1.0, "index": "idx"}, "`merge` fixes `gamma`, `bytes` of idx."),
        ({"keep": ["a"], "into": None}, "`keep` requires `into`."),
        ({"add": True, "gamma": None, "bytes": False, "keep": []}, None),
        ({"keep": True, "into": "db", "gamma": 0.5}, None),
    ],
)
def test_options_that_exclude_or_need_each_other(options, message):
    if message is None:
        check_options(RULES, options)
        return
    with pytest.raises(InputError) as error:
        check_options(RULES, options)
    assert str(error.value) == message
