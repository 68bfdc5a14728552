"""The errors jaxwhiten raises: one small hierarchy, messages that say what, where and what to do.

Programs turn any `JaxwhitenError` into one line on stderr and the exit code the class carries.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class JaxwhitenError(Exception):
    """Base of every error this library raises on purpose."""

    exit_code = 1


class InputError(JaxwhitenError, ValueError):
    """An argument, array or sentence that cannot be used; the message names the item."""

    exit_code = 2


class NonFiniteError(InputError):
    """A NaN or an infinity in the input; the message names the row."""


class ModelError(JaxwhitenError):
    """A model folder that cannot be read: configuration, tokenizer or weights; the message names file and tensor."""

    exit_code = 2


class DataError(JaxwhitenError):
    """A data file that is truncated, shifted, mis-encoded or mis-counted; the message names file and line."""

    exit_code = 2


class DataNotFoundError(DataError):
    """Data that is neither in a local folder nor downloadable; the message names both remedies."""


class FormatError(JaxwhitenError):
    """A file jaxwhiten wrote (moments, whitening, index, cache, checkpoint) that is damaged or of another version."""

    exit_code = 2


class OutputError(JaxwhitenError, OSError):
    """A file that could not be written: a full disk, a folder without permission; what was there before is intact."""

    exit_code = 1


class MismatchError(JaxwhitenError):
    """Two things that do not belong together, such as an index and a query encoded otherwise."""

    exit_code = 2


class MissingDependencyError(JaxwhitenError, ImportError):
    """An optional package that is not installed; the message names the extra that brings it."""

    exit_code = 2


class NotFittedError(JaxwhitenError, ValueError, AttributeError):
    """`transform` before `fit`."""

    exit_code = 2


def not_fitted(estimator: object) -> NotFittedError:
    """The error for an estimator used before `fit`.

    Where scikit-learn is loaded the error is also a `sklearn.exceptions.NotFittedError`, so that its tools
    recognise it; scikit-learn is never imported for that.
    """
    message = f"This {type(estimator).__name__} instance is not fitted yet: call fit, partial_fit or load first."
    sklearn_exceptions = sys.modules.get("sklearn.exceptions")
    if sklearn_exceptions is None:
        return NotFittedError(message)
    both = type("NotFittedError", (NotFittedError, sklearn_exceptions.NotFittedError), {})
    error: NotFittedError = both(message)
    return error


def unknown_name(what: str, name: object, valid: Iterable[str]) -> InputError:
    """An `InputError` for a mistyped name, with the nearest valid names first.

    Args:
      what: What the name stands for, such as `"pooling"`.
      name: What the user wrote.
      valid: Every name that would have been accepted.

    Returns:
      The error, to be raised by the caller.
    """
    choices = sorted(valid)
    near = difflib.get_close_matches(str(name), choices, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return InputError(f"Unknown {what} {name!r}.{hint} Valid: {', '.join(choices)}.")


def missing_dependency(package: str, extra: str, purpose: str) -> MissingDependencyError:
    """The error for an optional package that is not installed."""
    return MissingDependencyError(
        f"{purpose} needs the package {package}, which is not installed: pip install 'jaxwhiten[{extra}]'."
    )
