"""Names for annotations: what they cannot say more exactly, and dtypes and shapes.

The latter are jaxtyping's where it is loaded to check them, else nothing, as nothing reads them: importing jaxtyping
would take a tenth of the time to the first vectors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

__all__ = ["Array", "Bool", "Float", "Float32", "Float64", "Int", "Int8", "Int64", "Integer", "Key", "Real", "Scalar"]
__all__ += ["AnyArray", "Fields", "IdsLike", "Json", "OnnxGraph", "RowsLike"]
__all__ += ["Shaped", "UInt8"]

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import (
        Array,
        Bool,
        Float,
        Float32,
        Float64,
        Int,
        Int8,
        Int64,
        Integer,
        Key,
        Real,
        Scalar,
        Shaped,
        UInt8,
    )
else:

    class _Unchecked:
        def __class_getitem__(cls, shape: Any) -> Any:
            return Any

    Bool = Float = Float32 = Float64 = Int = Int8 = Int64 = Integer = Key = Real = Shaped = UInt8 = _Unchecked
    Array = Scalar = Any

Json = dict[str, Any]  # an object of JSON, such as a header, a record or a configuration
Fields = Mapping[str, Any]  # of such an object, or options by their names; not changed
RowsLike = Any  # numbers [n, d]: lists, arrays of NumPy, JAX, PyTorch and Arrow, memory maps, codes
IdsLike = Any  # strings or integers: lists, arrays, columns; or None
AnyArray = Any  # of NumPy or JAX, whichever a function is called with


@runtime_checkable
class OnnxGraph(Protocol):
    """What steps and codes need of `jaxwhiten.models.graph.Graph`; values are referred to by their names."""

    def constant(self, name: str, value: AnyArray) -> str: ...
    def number(self, value: float) -> str: ...
    def integers(self, *values: int) -> str: ...
    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str: ...
    def activation(self, name: str, x: str) -> str: ...
