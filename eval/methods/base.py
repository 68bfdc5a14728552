"""The base of the methods here: a state that is learned from rows and replaced by each fit."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np

from jaxwhiten.arrays import as_matrix
from jaxwhiten.whitening.estimator import Estimator, stamp

M = TypeVar("M", bound="Method")


class Method(Estimator):
    """A method that maps vectors, which are then compared by cosine.

    A subclass defines `name`, which `METHODS` uses, `_learn` and `_map`. The decorator `parameters` turns its annotated
    attributes into arguments of the constructor.
    """

    _state: Any

    @abstractmethod
    def _learn(self, X: np.ndarray) -> Any:
        """The state after these rows, at least one.

        Raises NonFiniteError for rows that are not finite.
        """

    @abstractmethod
    def _map(self, state: Any, X: np.ndarray) -> np.ndarray:
        """`transform` of rows that were checked."""

    def fit(self: M, X: Any, y: Any = None) -> M:
        """Learns from [n, d] rows and forgets earlier ones; `y` is ignored.

        Raises:
          NonFiniteError: A row holds NaN or an infinity. The message names the row; nothing is changed.
        """
        started = time.perf_counter()
        X = as_matrix(X, type(self).__name__, min_rows=1)
        self._check_params(X.shape[1])
        self._state = self._learn(X)
        return self._fitted_on(len(X), X.shape[1], stamp(time.perf_counter() - started))

    def _apply(self, X: np.ndarray) -> np.ndarray:
        return self._map(self._state, X)
