"""Errors say what, where and what to do."""

import subprocess
import sys

import pytest

from jaxwhiten import errors


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


def test_not_fitted_is_scikit_learns_too():
    exceptions = pytest.importorskip("sklearn.exceptions")
    error = errors.not_fitted(object())
    assert isinstance(error, errors.NotFittedError)
    assert isinstance(error, exceptions.NotFittedError)


def test_importing_the_library_imports_nothing_heavy():
    heavy = ["jax", "flax", "transformers", "torch", "faiss", "sklearn", "matplotlib", "tensorflow_datasets", "scipy"]
    code = f"import sys, jaxwhiten, jaxwhiten.errors; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_missing_dependency_names_the_extra():
    assert "jaxwhiten[cpu]" in str(errors.missing_dependency("faiss", "cpu", "Searching"))
