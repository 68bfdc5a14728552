"""Names of what annotations cannot say more exactly, as `numpy.typing` and `jax.typing` have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

Json = dict[str, Any]  # an object of JSON, such as a header, a record or a configuration
Fields = Mapping[str, Any]  # of such an object, or options by their names; not changed
RowsLike = Any  # numbers [n, d]: lists, arrays of NumPy, JAX, PyTorch and Arrow, memory maps, codes
IdsLike = Any  # strings or integers: lists, arrays, columns; or None
MetadataLike = Any  # of each document a dictionary, or None: a list of them, or None
AnyArray = Any  # of NumPy or JAX, whichever a function is called with
PyTree = Any  # JAX's: arrays in dictionaries, lists, tuples or modules
FaissObject = Any  # an index, transform or selector of FAISS, which has no types


@runtime_checkable
class OnnxGraph(Protocol):
    """What steps and codes need of `jaxwhiten.models.graph.Graph`; values are referred to by their names."""

    def constant(self, name: str, value: AnyArray) -> str: ...
    def number(self, value: float) -> str: ...
    def integers(self, *values: int) -> str: ...
    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str: ...
    def activation(self, name: str, x: str) -> str: ...
