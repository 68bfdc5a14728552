"""Methods that follow from mean and covariance: they learn alike, and differ in the map they make of these."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.decomposition import Decomposition
from jaxwhiten.whitening.estimator import VectorMethod
from jaxwhiten.whitening.moments import Moments

# Threads that come to a fit that is not decomposed yet wait for the first of them.
_LOCK = threading.Lock()


class Spectrum:
    """Mean and covariance as their moments, their decomposition, or both; what is missing follows from the other."""

    def __init__(self, moments: Moments | None, decomposition: Decomposition | None = None) -> None:
        self._moments = moments
        self.decomposition = decomposition
        self.maps: dict[bool, tuple[Any, Affine]] = {}  # with their parameters, by whether they are inverse

    def moments(self) -> Moments:
        """A copy of the moments."""
        if self._moments is not None:
            return Moments().merge(self._moments)
        assert self.decomposition is not None
        return self.decomposition.moments()

    def __getstate__(self) -> dict[str, Any]:  # copies and scikit-learn's workers make their own device constants
        return self.__dict__ | {"maps": {}}


class SpectralMethod(VectorMethod):
    """A linear map that follows from mean and covariance. A subclass adds `_map`.

    After `partial_fit` the eigendecomposition waits until something needs it. `transform` may be called from several
    threads.
    """

    @abstractmethod
    def _map(self, decomposition: Decomposition) -> Affine:
        """The map for the present parameters, which were checked."""

    def _inverse_map(self, decomposition: Decomposition) -> Affine:
        """The inverse of the map for the present parameters, where the class has one."""
        raise NotImplementedError

    def _check_fit(self, decomposition: Decomposition) -> None:
        """Warns of a fit that cannot be relied on."""

    def _learn(self, X: np.ndarray, state: Spectrum | None) -> Spectrum:
        return Spectrum((Moments() if state is None else state.moments()).add(X))

    def _complete(self, state: Spectrum) -> Spectrum:
        return Spectrum(None, self._decompose(state))

    def _decompose(self, spectrum: Spectrum) -> Decomposition:
        if spectrum.decomposition is None:
            with _LOCK:
                if spectrum.decomposition is None:
                    spectrum.decomposition = Decomposition.of(spectrum.moments())
                    self._check_fit(spectrum.decomposition)
        return spectrum.decomposition

    @property
    def _decomposition(self) -> Decomposition:
        return self._decompose(self._fitted().state)

    def _affine(self, spectrum: Spectrum, inverse: bool = False) -> Affine:
        """The map for the present parameters; kept until they change."""
        params = tuple(self.get_params().values())
        found = spectrum.maps.get(inverse)
        if found is None or found[0] != params:
            decomposition = self._decompose(spectrum)
            self._check_params(len(decomposition.mean))
            found = (params, (self._inverse_map if inverse else self._map)(decomposition))
            spectrum.maps[inverse] = found
        return found[1]

    def _apply(self, state: Spectrum, X: np.ndarray) -> np.ndarray:
        return self._affine(state)(X)

    def _pack(self, state: Spectrum) -> dict[str, np.ndarray]:
        return self._decompose(state).tensors()

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> Spectrum:
        decomposition = Decomposition.from_tensors(tensors)
        problem = decomposition.problem()
        if problem or len(decomposition.mean) != d:
            raise ValueError(problem or f"a mean of {len(decomposition.mean)} columns, not {d}")
        return Spectrum(None, decomposition)
