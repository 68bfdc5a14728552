"""Names of what annotations cannot say more exactly, as `numpy.typing` and `jax.typing` have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]  # an object of JSON, such as a header, a record or a configuration
Fields = Mapping[str, Any]  # of such an object, or options by their names; not changed
RowsLike = Any  # numbers [n, d]: lists, arrays of NumPy, JAX, PyTorch and Arrow, memory maps, codes
IdsLike = Any  # strings or integers: lists, arrays, columns; or None
