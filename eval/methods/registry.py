"""All methods by name, and a function to make any of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from eval.methods.flow import BertFlow
from jaxwhiten.errors import check_name
from jaxwhiten.whitening import Whitening

METHODS: Mapping[str, Callable[..., Any]] = {
    BertFlow.name: BertFlow,
    "shrunk-whitening": functools.partial(Whitening, shrinkage="oas"),
}
"""Every method by name: a callable that makes an unfitted estimator from parameters."""


def make_method(name: str, **params: Any) -> Any:
    """Makes the method of that name in `METHODS` from arguments of its constructor; it is not fitted yet."""
    check_name("method", name, METHODS)
    return METHODS[name]().set_params(**params)
