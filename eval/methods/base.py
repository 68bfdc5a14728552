"""The base of the methods here: a state that is learned from rows, also block by block, and replaced by each fit."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from jaxwhiten.arrays import as_matrix
from jaxwhiten.whitening.estimator import Estimator, stamp

M = TypeVar("M", bound="Method")


class Method(Estimator):
    """A method that maps vectors, which are then compared by cosine.

    A subclass defines `name`, which `METHODS` and files use, and `_learn`, `_map`, `_pack` and `_unpack`. The decorator
    `parameters` turns its annotated attributes into arguments of the constructor.
    """

    _state: Any

    @abstractmethod
    def _learn(self, X: np.ndarray, state: Any) -> Any:
        """The state after at least one row; `state` holds earlier rows or is None, and is not changed.

        Raises NonFiniteError for rows that are not finite.
        """

    @abstractmethod
    def _map(self, state: Any, X: np.ndarray) -> np.ndarray:
        """`transform` of rows that were checked."""

    def _pack(self, state: Any) -> dict[str, np.ndarray]:
        """The state as named arrays; by default the state is a named tuple."""
        return {name: np.asarray(value) for name, value in state._asdict().items()}

    @abstractmethod
    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> Any:
        """The reverse of `_pack`; KeyError or ValueError if the arrays are not a valid state for d columns."""

    def fit(self: M, X: Any, y: Any = None) -> M:
        """Learns from [n, d] rows and forgets earlier ones; `y` is ignored.

        Raises:
          NonFiniteError: A row holds NaN or an infinity. The message names the row; nothing is changed.
        """
        return self._take(X, None, None, 0, {})

    def partial_fit(self: M, X: Any, y: Any = None) -> M:
        """Adds rows to those seen by `fit` or `partial_fit`, also before `save`. Args and Raises as for `fit`."""
        return self._take(X, self._state if self.__sklearn_is_fitted__() else None, *self._so_far())

    def _take(self: M, X: Any, state: Any, d: int | None, n: int, record: Mapping[str, Any]) -> M:
        started = time.perf_counter()
        X = as_matrix(X, type(self).__name__, columns=d, min_rows=int(d is None))
        self._check_params(X.shape[1])
        if len(X):
            state = self._learn(X, state)
        self._state = state
        seconds = record.get("fit_seconds", 0.0) + time.perf_counter() - started
        return self._fitted_on(n + len(X), X.shape[1], {**record, **stamp(seconds)})

    def _apply(self, X: np.ndarray) -> np.ndarray:
        return self._map(self._state, X)

    def tensors(self) -> dict[str, np.ndarray]:
        return self._pack(self._state)

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        self._state = self._unpack(tensors, d)
