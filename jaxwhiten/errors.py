"""The exceptions of jaxwhiten; their messages say what went wrong, where, and what to do.

Programs report any `JaxwhitenError` as one line on stderr and exit with the `exit_code` of its class.
"""

from __future__ import annotations

import difflib
import importlib
import math
import numbers
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxwhiten.terminal import counted

_OURS = ("jaxwhiten", "jaxtyping", "contextlib", "functools")  # frames that no caller wrote
_REASON = 300  # characters, at most, of what another library says


class JaxwhitenError(Exception):
    """Base class of all exceptions this library raises deliberately.

    >>> issubclass(InputError, JaxwhitenError), InputError.exit_code
    (True, 2)
    """

    exit_code = 1


class _BadInputError(JaxwhitenError):
    """The caller gave something that cannot be used."""

    exit_code = 2


class InputError(_BadInputError, ValueError):
    """An argument, array or sentence cannot be used; the message names it.

    >>> Encoder.from_pretrained("jaxwhiten-tiny", pooling="maen")
    Traceback (most recent call last):
    jaxwhiten.errors.InputError: Unknown pooling 'maen'. Did you mean 'mean' or 'max'? ...
    """


class NonFiniteError(InputError):
    """The input, or a vector of the encoder, holds NaN or an infinity; the message names the row or the text.

    >>> NonFiniteError.of_texts([1], ["a dog", "rain"]).rows
    [1]
    """

    rows: Sequence[int] = ()  # the texts whose vectors are not finite

    @classmethod
    def of_row(cls, row: int, what: str = "input") -> NonFiniteError:
        """The error for a row of numbers."""
        return cls(f"Row {row} of the {what} contains NaN or inf: remove or repair it.")

    @classmethod
    def of_texts(cls, rows: Sequence[int], texts: Sequence[Any] = (), first: int = 0) -> NonFiniteError:
        """The error for an encoder's vectors of `rows`, counted from the first text, whose own number is `first`."""
        begins = f", {texts[rows[0]]!r:.60}," if len(texts) else ""
        more = f", as do those of {len(rows) - 1:,} more" if len(rows) > 1 else ""
        error = cls(
            f"The vector of text {first + rows[0]}{begins} contains NaN or inf{more}. Check the model with `jaxwhiten"
            " verify`, use dtype='float32', or remove the text."
        )
        error.rows = [first + row for row in rows]
        return error


class ModelError(_BadInputError):
    """A model folder cannot be read: configuration, tokenizer or weights; the message names file and tensor.

    >>> Encoder.from_pretrained(".", pooling="mean")
    Traceback (most recent call last):
    jaxwhiten.errors.ModelError: .: no config.json; ...
    """


class DataError(_BadInputError):
    """A data file is truncated, shifted, mis-encoded or mis-counted; the message names file and line.

    >>> _ = Path("scored.tsv").write_text("sentence1\\tsentence2\\tscore\\nA dog runs.\\tIt rains.\\n")
    >>> evaluate(Encoder.from_pretrained("jaxwhiten-tiny"), "scored.tsv")
    Traceback (most recent call last):
    jaxwhiten.errors.DataError: scored.tsv, line 2: 2 columns, expected 3.
    """


class DataNotFoundError(DataError):
    """There is no such data; the message says where it was looked for.

    >>> from jaxwhiten.datasets import corpus_files
    >>> corpus_files("absent.txt")
    Traceback (most recent call last):
    jaxwhiten.errors.DataNotFoundError: ...
    """


class FormatError(_BadInputError):
    """A file written by jaxwhiten (moments, whitening, index, cache, checkpoint) is damaged or too new.

    >>> Whitening.load("texts.txt")
    Traceback (most recent call last):
    jaxwhiten.errors.FormatError: texts.txt: not a readable jaxwhiten whitening file ...
    """


class OutputError(JaxwhitenError, OSError):
    """A file could not be written, for lack of space or permission; an existing file is left intact.

    >>> Moments().update(np.eye(3)).save("texts.txt/moments.safetensors")
    Traceback (most recent call last):
    jaxwhiten.errors.OutputError: ...moments.safetensors: could not be written ...
    """


class MismatchError(_BadInputError):
    """Two inputs do not belong together, such as an index and queries of another encoder.

    >>> Moments().update(np.eye(3)).merge(Moments().update(np.eye(2)))
    Traceback (most recent call last):
    jaxwhiten.errors.MismatchError: The sum expects 3 dimensions, got 2 from the other moments.
    """


class MissingDependencyError(_BadInputError, ImportError):
    """An optional package is not installed; the message names the extra to install.

    >>> optional("no_such_module", "train", "Training")
    Traceback (most recent call last):
    jaxwhiten.errors.MissingDependencyError: Training needs the package no_such_module, ...
    """


class NotFittedError(_BadInputError, ValueError, AttributeError):
    """`transform` was called before `fit`.

    >>> Whitening().transform(np.eye(3))
    Traceback (most recent call last):
    jaxwhiten.errors.NotFittedError: This Whitening instance is not fitted yet: ...
    """


REASON = "\0"  # in a message of `turning`: what the error says, in one line


class turning:
    """Turns errors of these kinds in the block into an error of this library, whose message has a place for `REASON`.

    Without kinds all errors are turned, for libraries that raise many types; but those of this library pass. Unlike a
    generator's, its frames make no cycle with the error, which would keep what callers hold until the next collection.

    >>> from jaxwhiten.errors import REASON
    >>> with turning(DataError, f"scores.npy: not readable ({REASON}).", ValueError):
    ...     float("two")
    Traceback (most recent call last):
    jaxwhiten.errors.DataError: scores.npy: not readable (could not convert string to float: 'two').
    """

    def __init__(self, error: type[Exception], message: str, *kinds: type[Exception]):
        self._error = error
        self._message = message
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, cause: BaseException | None, traceback: object) -> None:
        if not isinstance(cause, self._kinds or Exception):
            return
        if not self._kinds and isinstance(cause, JaxwhitenError):
            return
        reason = getattr(cause, "strerror", None) or " ".join(str(cause).split()) or type(cause).__name__
        raise self._error(self._message.replace(REASON, reason[:_REASON])) from cause


def not_fitted(estimator: object) -> NotFittedError:
    """The error for an estimator used before `fit`.

    If scikit-learn is imported, the error is also a `sklearn.exceptions.NotFittedError`, which its tools recognize.

    >>> print(not_fitted(Whitening()))
    This Whitening instance is not fitted yet: call fit, partial_fit or load first.
    """
    message = f"This {type(estimator).__name__} instance is not fitted yet: call fit, partial_fit or load first."
    sklearn_exceptions = sys.modules.get("sklearn.exceptions")
    if sklearn_exceptions is None:
        return NotFittedError(message)
    both = type("NotFittedError", (NotFittedError, sklearn_exceptions.NotFittedError), {})
    error: NotFittedError = both(message)
    return error


def unknown_name(what: str, name: object, valid: Iterable[str]) -> InputError:
    """An `InputError` for an unknown name of a kind such as `"pooling"`; it suggests the nearest valid names.

    >>> print(unknown_name("pooling", "maen", ["mean", "cls"]))
    Unknown pooling 'maen'. Did you mean 'mean'? Valid: cls, mean.
    """
    choices = sorted(valid)
    bare = {choice.lstrip("-"): choice for choice in choices}  # shared dashes would make all names similar
    near = difflib.get_close_matches(str(name).lstrip("-"), bare, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(bare[n]) for n in near)}?" if near else ""
    advice = f"Valid: {', '.join(choices)}." if choices else "There is none."
    return InputError(f"Unknown {what} {name!r}.{hint} {advice}")


def check_name(what: str, name: object, valid: Iterable[Any]) -> None:
    """Raises `unknown_name` if a name is not among the valid ones.

    >>> check_name("pooling", "sum", ["mean", "cls"])
    Traceback (most recent call last):
    jaxwhiten.errors.InputError: ...
    """
    if name not in (names := list(valid)):
        raise unknown_name(what, name, names)


class Bounds(NamedTuple):
    """What the value of a parameter may be: a finite number between bounds, whose type is that of the lower one.

    >>> Bounds(1, 64).check("k", 0)
    Traceback (most recent call last):
    jaxwhiten.errors.InputError: k=0: expected an integer from 1 to 64.
    """

    low: int | float = 0.0  # with False and True as the bounds, the value is one of them
    high: int | float | None = None
    above: bool = False  # whether the lower bound itself is excluded
    below: bool = False  # whether the upper bound itself is excluded
    names: tuple[str, ...] = ()  # that may stand for a number
    none: bool = False  # whether None may

    @property
    def words(self) -> str:
        """What is expected, in words."""
        kind = type(self.low)
        if kind is bool:
            return "True or False"
        low, high = (bound if kind is int else f"{bound:g}" for bound in (self.low, self.high or 0))
        if self.high is not None and not self.above and not self.below:
            limits = f"from {low} to {high}"
        else:
            limits = f"above {low}" if self.above else f"of at least {low}"
            limits += "" if self.high is None else f", below {high}" if self.below else f", at most {high}"
        return " or ".join((*map(repr, self.names), f"{'an integer' if kind is int else 'a number'} {limits}"))

    def hold(self, value: Any) -> bool:
        """Whether a value is valid."""
        kind = type(self.low)
        if value is None or isinstance(value, str | bool):
            return (self.none and value is None) or value in self.names or type(value) is kind is bool
        numeric: Any = numbers.Integral if kind is int else numbers.Real
        if kind is bool or not isinstance(value, numeric):
            return False
        high = math.inf if self.high is None else self.high
        from_low = self.low < value if self.above else self.low <= value
        return bool(from_low and (value < high if self.below else value <= high) and abs(value) < math.inf)

    def check(self, name: str, value: object, error: type[JaxwhitenError] = InputError) -> None:
        """Raises an error unless the value is valid: InputError for a parameter, others for an entry of a file."""
        if not self.hold(value):
            joints = ("=", ":") if error is InputError else (" is ", ";")
            raise error(f"{name}{joints[0]}{value!r:.80}{joints[1]} expected {self.words}.")


def check_integer(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raises InputError unless a parameter is an integer of at least `least`, and at most `most`.

    >>> check_integer("k", 64, least=1)
    """
    Bounds(least, most).check(name, value)


def check_width(
    taker: str,
    expects: int,
    width: object,
    giver: object = "the vectors",
    advice: str = "",
    error: type[JaxwhitenError] = MismatchError,
) -> None:
    """Raises an error unless vectors have the width that something expects.

    >>> check_width("whitening", 8, 4)
    Traceback (most recent call last):
    jaxwhiten.errors.MismatchError: The whitening expects 8 dimensions, got 4 from the vectors.
    """
    if width != expects:
        raise error(f"The {taker} expects {expects} dimensions, got {width} from {giver}{advice}.")


def check_counts(what: str, count: int, other: str, expected: int) -> None:
    """Raises InputError unless there are as many of one as of the other.

    >>> check_counts("ids", 3, "documents", 4)
    Traceback (most recent call last):
    jaxwhiten.errors.InputError: 3 ids but 4 documents.
    """
    if count != expected:
        raise InputError(f"{counted(count, what)} but {counted(expected, other)}.")


def optional(module: str, extra: str, purpose: str, package: str = "") -> Any:
    """Imports a module of an optional package; MissingDependencyError names the extra if it is not installed.

    `purpose` is the feature that needs the package, whose name is given if it differs from the module's. Without an
    extra, it is to be installed by itself.

    >>> optional("faiss", "cpu", "Search", "faiss-cpu").__name__
    'faiss'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = package or module
        command = install_command(extra) if extra else f"pip install {package}"
        raise MissingDependencyError(
            f"{purpose} needs the package {package}, which is not installed: {command}."
        ) from error


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line outside this package that led here.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     warn("Use more rows.")
    >>> str(caught[0].message)
    'Use more rows.'
    """
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and (frame.f_globals.get("__name__") or _OURS[0]).partition(".")[0] in _OURS:
        frame = frame.f_back
        level = level + 1
    warnings.warn(message, category, stacklevel=level)


def check_installed(module: str, extra: str, purpose: str, package: str = "") -> None:
    """`optional` without the import, for a command that says first what is missing.

    >>> check_installed("no_such_module", "train", "Training")
    Traceback (most recent call last):
    jaxwhiten.errors.MissingDependencyError: Training needs the package no_such_module, ...
    """
    import importlib.util

    if importlib.util.find_spec(module) is None:
        optional(module, extra, purpose, package)


def install_command(extra: str) -> str:
    """The command that installs this package with an extra, from a checkout or from the repository in its metadata.

    >>> "[serve]" in install_command("serve")
    True
    """
    return f"pip install '.[{extra}]' in a checkout, or pip install 'jaxwhiten[{extra}] @ git+{_repository()}'"


def _repository() -> str:
    """`Repository` of `[project.urls]`, from the pyproject.toml of the checkout or the installed metadata."""
    checkout = Path(__file__).parent.parent / "pyproject.toml"
    if checkout.is_file():
        import tomllib

        address: str = tomllib.loads(checkout.read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
        return address
    from importlib import metadata

    urls = metadata.metadata("jaxwhiten").get_all("Project-URL") or []
    return dict(url.split(", ", 1) for url in urls)["Repository"]
