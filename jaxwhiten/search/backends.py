"""Every backend by name."""

from __future__ import annotations

from jaxwhiten.errors import FormatError
from jaxwhiten.io import from_json
from jaxwhiten.search.faiss import FLAT
from jaxwhiten.search.header import COPY, Header
from jaxwhiten.search.ivf import IVF
from jaxwhiten.search.jax_flat import JAX
from jaxwhiten.search.prepare import Coding
from jaxwhiten.search.store import Arrays, Backend, Store

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (FLAT, IVF, JAX)}
"""Every backend by name."""


def store_of(header: Header, arrays: Arrays, where: str) -> Store:
    """The store of an index with this header and these arrays; FormatError or ValueError if they contradict it."""
    if header.backend not in BACKENDS:
        raise FormatError(f"{where}: a {header.backend!r} index, which this jaxwhiten does not support: rebuild it.")
    if header.rescore not in (None, COPY):
        raise FormatError(
            f"{where}: rescored by {header.rescore!r:.80}, which this jaxwhiten does not support: rebuild it."
        )
    backend = BACKENDS[header.backend]
    options = from_json(backend.options, header.options, f"{where}: options", "Rebuild the index.")
    coding = Coding.read(arrays, header)
    return backend.store(coding.quantizer is not None).read(arrays, options, coding)
