"""All methods by name, and functions to load and score any of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxwhiten.errors import check_name
from jaxwhiten.io import PathLike, load_tensors
from jaxwhiten.methods.columns import Centring, Identity, ZScore
from jaxwhiten.methods.flow import BertFlow
from jaxwhiten.methods.hubness import LocalScaling, MutualProximityGauss
from jaxwhiten.methods.projection import AllButTheTop, RandomProjection
from jaxwhiten.metrics.scores import cosine_pairs
from jaxwhiten.whitening.estimator import Method
from jaxwhiten.whitening.whitening import Whitening

_VECTORS: tuple[type[Method], ...] = (Identity, Centring, ZScore, AllButTheTop, RandomProjection, BertFlow, Whitening)
_PAIRS: tuple[type[Method], ...] = (MutualProximityGauss, LocalScaling)
_CLASSES = {method.name: method for method in (*_VECTORS, *_PAIRS)}

METHODS: Mapping[str, Callable[..., Any]] = {
    **_CLASSES,
    "pca": functools.partial(Whitening, gamma=0.0),
    "shrunk-whitening": functools.partial(Whitening, shrinkage="oas"),
}
"""Every method by name: a callable that makes an unfitted estimator from parameters."""


def make_method(name: str, **params: Any) -> Any:
    """Makes the method of that name in `METHODS` from arguments of its constructor; it is not fitted yet."""
    check_name("method", name, METHODS)
    return METHODS[name]().set_params(**params)


def load_method(path: PathLike) -> Any:
    """Loads any fitted method, including a `Whitening`, from the file that its `save` wrote."""
    tensors, header = load_tensors(path, kind=tuple(_CLASSES))
    return _CLASSES[header["kind"]].from_tensors(path, tensors, header)


def pair_similarity(method: Any, a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """The similarity of row i of `a` and row i of `b`, both raw vectors, under a fitted method.

    This is the method's own `similarity` if it has one, else the cosine of the transformed vectors.
    """
    if hasattr(method, "similarity"):
        return method.similarity(a, b)
    return cosine_pairs(method.transform(a), method.transform(b))
