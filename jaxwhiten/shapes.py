"""Dtypes and shapes in annotations: jaxtyping's where it is loaded to check them, else nothing, as nothing reads them.

Importing jaxtyping would take a tenth of the time to the first vectors.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

__all__ = ["Array", "Bool", "Float", "Float32", "Float64", "Int", "Int8", "Int64", "Integer", "Key", "Real", "Scalar"]
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
