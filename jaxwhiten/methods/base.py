"""What every method is: learned from rows, applied to rows or to pairs of rows, saved and loaded.

A method keeps what it learned in one state, which four functions of the subclass make, use, write and read. The
classes here do the rest: parameters, checks, provenance and files.
"""

from __future__ import annotations

import datetime
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.arrays import as_matrix, block_rows, first_nonfinite_row, nonfinite_error
from jaxwhiten.errors import FormatError, InputError, not_fitted
from jaxwhiten.whitening.estimator import Estimator

KIND = "method"

# Not typing.Self: the run-time type checker of the tests does not take it in methods.
M = TypeVar("M", bound="Method")


def check_finite(X: np.ndarray) -> None:
    """Raises NonFiniteError, naming the first row that holds a NaN or an infinity."""
    rows = block_rows(X.shape[1], X.dtype.itemsize)
    for start in range(0, len(X), rows):
        row = first_nonfinite_row(X[start : start + rows])
        if row is not None:
            raise nonfinite_error(start + row)


class Method(Estimator, ABC):
    """A training-free method, as a scikit-learn estimator.

    A subclass has the attribute `name`, and `_learn`, `_pack` and `_unpack`.

    Attributes:
      name: What the method is called in `METHODS` and in files.
    """

    name: ClassVar[str]

    _state: Any  # set by the first fit, like the rest
    _d: int
    _n: int
    _seconds: float
    _date: str
    _given: dict[str, Any]

    def __init__(self) -> None:
        """A method without parameters; others store each argument under its own name."""

    @abstractmethod
    def _learn(self, X: np.ndarray, state: Any) -> Any:
        """The state after at least one row; `state` is None or that of earlier rows.

        Refuses rows that are not finite. An earlier state may be changed in place, but only if nothing fails after.
        """

    @abstractmethod
    def _pack(self, state: Any) -> dict[str, np.ndarray]:
        """The state as named arrays."""

    @abstractmethod
    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> Any:
        """The reverse of `_pack`; KeyError or ValueError where the arrays cannot be a state for d columns."""

    def _check_params(self, d: int) -> None:
        """Raises InputError where a parameter cannot be, for rows of d columns."""

    def fit(self: M, X: Any, y: Any = None) -> M:
        """Learns from rows, forgetting earlier ones.

        Args:
          X: [n, d] rows.
          y: Ignored.

        Returns:
          This object.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it, nothing is changed.
          InputError: Not a matrix of numbers, no rows, or a parameter that cannot be.
        """
        return self._take(X, fresh=True)

    def partial_fit(self: M, X: Any, y: Any = None) -> M:
        """Adds rows to those already seen, by `fit`, `partial_fit` or the run that saved this object.

        Args:
          X: [n, d] rows. n may be 0 once rows were seen.
          y: Ignored.

        Returns:
          This object.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it, nothing is changed.
          InputError: Not a matrix of numbers, or another number of columns.
        """
        return self._take(X, fresh=not self.__sklearn_is_fitted__())

    def _take(self: M, X: Any, fresh: bool) -> M:
        started = time.perf_counter()
        X = as_matrix(X, type(self).__name__)
        if not fresh:
            self._check_columns(X)
        self._check_params(X.shape[1])
        if len(X):
            state = self._learn(X, None if fresh else self._state)
        elif fresh:
            raise InputError(
                f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required by "
                f"{type(self).__name__}."
            )
        else:
            state = self._state
        if fresh:
            self._n, self._seconds, self._given = 0, 0.0, {}
        self._state, self._d, self._n = state, X.shape[1], self._n + len(X)
        self._seconds += time.perf_counter() - started
        self._date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return self

    def _fitted(self) -> Any:
        if not self.__sklearn_is_fitted__():
            raise not_fitted(self)
        return self._state

    def _check_columns(self, X: np.ndarray) -> None:
        if X.shape[1] != self._d:
            raise InputError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self._d} features as input."
            )

    def _rows(self, X: Any) -> np.ndarray:
        """Rows to apply the method to, checked."""
        self._fitted()
        X = as_matrix(X, type(self).__name__)
        self._check_columns(X)
        return X

    @property
    def n_features_in_(self) -> int:
        """d, the columns of the input."""
        self._fitted()
        return self._d

    @property
    def n_samples_seen_(self) -> int:
        """Rows fitted on."""
        self._fitted()
        return self._n

    @property
    def provenance(self) -> dict[str, Any]:
        """Where this comes from: method, parameters, rows, dimension, seconds of fitting, and what else was given."""
        self._fitted()
        facts = {
            "method": self.name,
            "params": self.get_params(),
            "n": self._n,
            "dimension": self._d,
            "fit_seconds": self._seconds,
            "date": self._date,
            "version": __version__,
        }
        return {"model": None, "pooling": None, **self._given, **facts}

    def save(self, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None) -> None:
        """Writes a safetensors file with a JSON header, from which `transform` and `partial_fit` go on.

        Args:
          path: The file to write.
          provenance: Further JSON-representable facts, such as model and pooling.

        Raises:
          NotFittedError: Nothing was fitted yet.
        """
        tensors = self._pack(self._fitted())
        header = {"method": self.name, "provenance": self.provenance | dict(provenance or {})}
        io.save_tensors(path, tensors, kind=KIND, header=header)

    @classmethod
    def load(cls: type[M], path: str | os.PathLike[str]) -> M:
        """Reads a file written by `save` and checks its contents.

        Args:
          path: The file to read.

        Returns:
          The fitted method.

        Raises:
          FormatError: Missing, damaged, of another method, or numbers that cannot be what this method learns.
        """
        return cls.from_tensors(path, *io.load_tensors(path, kind=KIND))

    @classmethod
    def from_tensors(
        cls: type[M], path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], header: Mapping[str, Any]
    ) -> M:
        """What `load` does once the file was read.

        Args:
          path: Where the file lies, for messages.
          tensors: Its arrays.
          header: Its header.

        Returns:
          The fitted method.

        Raises:
          FormatError: Of another method, or numbers that cannot be what this method learns.
        """
        if header.get("method") != cls.name:
            raise FormatError(f"{path}: holds the method {header.get('method')!r}, not {cls.name!r}.")
        try:
            given = dict(header["provenance"])
            given.pop("version"), given.pop("method")
            result = cls()
            result.set_params(**given.pop("params"))
            result._d, result._n = int(given.pop("dimension")), int(given.pop("n"))
            result._seconds, result._date, result._given = float(given.pop("fit_seconds")), given.pop("date"), given
            if result._d < 1 or result._n < 1:
                raise ValueError(f"{result._n} rows of {result._d} columns")
            if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in tensors.values()):
                raise ValueError("a number is NaN or infinite")
            result._check_params(result._d)
            with np.errstate(all="ignore"):
                result._state = result._unpack(tensors, result._d)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{path}: not complete as a file of {cls.name} ({error}). Write it again.") from error
        return result

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")


class VectorMethod(Method):
    """A method that maps vectors to vectors, which are then compared by cosine. A subclass adds `_apply`."""

    @abstractmethod
    def _apply(self, state: Any, X: np.ndarray) -> np.ndarray:
        """Maps rows with the right number of columns; refuses rows that are not finite."""

    def transform(self, X: Any) -> Float[np.ndarray, "n k"]:
        """Maps rows.

        Args:
          X: [n, d] rows.

        Returns:
          float32 for rows in float32 or of at most 16 bits, float64 for others, unless the class says otherwise.

        Raises:
          NotFittedError: Nothing was fitted yet.
          NonFiniteError: A row holds NaN or an infinity; the message names it.
          InputError: Not a matrix of numbers, or another number of columns.
        """
        X = self._rows(X)
        return self._apply(self._state, X)

    def fit_transform(self, X: Any, y: Any = None) -> Float[np.ndarray, "n k"]:
        """`fit`, then `transform` of the same rows."""
        return self.fit(X).transform(X)


class SimilarityMethod(Method):
    """A method that leaves vectors as they are and corrects the similarity of a pair. A subclass adds `_compare`.

    It is fitted on reference vectors, which say what is near and far, and then compares any two vectors. There is no
    `transform`: the corrected similarity is not the cosine of any pair of vectors.
    """

    @abstractmethod
    def _compare(self, state: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Similarities of rows that are finite and have the right number of columns."""

    def similarity(self, a: Any, b: Any) -> Float[np.ndarray, " n"]:
        """The corrected similarity of row i of `a` with row i of `b`; symmetric, larger is nearer.

        Args:
          a: [n, d] rows.
          b: [n, d] rows.

        Returns:
          float64 similarities. Their order and their scale mean something only for one fitted method.

        Raises:
          NotFittedError: Nothing was fitted yet.
          NonFiniteError: A row holds NaN or an infinity; the message names it.
          InputError: Not matrices of numbers, other columns than the reference, or different numbers of rows.
        """
        a, b = self._rows(a), self._rows(b)
        if len(a) != len(b):
            raise InputError(f"{len(a)} rows cannot be paired with {len(b)}.")
        check_finite(a)
        check_finite(b)
        return self._compare(self._state, a, b)
