"""Backends by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxwhiten.codes import Code, Quantiser
from jaxwhiten.errors import FormatError, unknown_name
from jaxwhiten.search.base import Index
from jaxwhiten.search.faiss import FaissIndex
from jaxwhiten.search.header import read_header
from jaxwhiten.search.jax_flat import JaxIndex

BACKENDS: Mapping[str, type[Index]] = {
    backend: index for index in (FaissIndex, JaxIndex) for backend in index.default_options
}


def build_index(
    vectors: Float[np.ndarray, "n d"],
    backend: str = "faiss-flat",
    *,
    whitening: Any | None = None,
    normalize: bool = True,
    encoding: Mapping[str, Any] | None = None,
    documents: Sequence[str] | None = None,
    codes: str | Code | Quantiser | None = None,
    bytes: int | None = None,
    rescore: str | None = None,
    **options: Any,
) -> Index:
    """Builds an index of the named backend.

    Args:
      vectors: Raw document vectors; a memory map is read block by block.
      backend: One of `BACKENDS`.
      whitening: A fitted `Whitening` to put inside the index, or None.
      normalize: Whether vectors are scaled to unit length, so that scores are cosines.
      encoding: How the vectors were encoded (`Encoder.encoding`); queries that say otherwise are refused.
      documents: The texts, one per vector.
      codes: Keeps the documents in codes: a name of `jaxwhiten.codes.CODES`; one that FAISS trains, `"pq"`, `"opq"`,
        `"rabitq"`, `"eden"`, `"sq4"` or `"sq8"`; `"auto"` for the best of this kind of vectors; a fitted code of raw
        vectors, or the quantiser of one. None for float32.
      bytes: Per document; without `codes` it stands for `codes="auto"`.
      rescore: Keeps a copy of the vectors in `"float16"` or `"int8"`, by which four candidates for each result are
        scored again. Once loaded, the copy is a memory map.
      **options: The backend's options, such as `nlist` and `nprobe` of `faiss-ivf`.

    Returns:
      The index.

    Raises:
      InputError: No such backend or option, a zero vector, or shapes that do not fit.
      MismatchError: A whitening of other vectors than `encoding` says.
      NonFiniteError: A NaN or an infinity.
      MissingDependencyError: The backend's package or device is missing.
    """
    if backend not in BACKENDS:
        raise unknown_name("search backend", backend, BACKENDS)
    return BACKENDS[backend].build(
        vectors,
        backend=backend,
        whitening=whitening,
        normalize=normalize,
        encoding=encoding,
        documents=documents,
        codes=codes,
        bytes=bytes,
        rescore=rescore,
        **options,
    )


def load_index(path: str | os.PathLike[str]) -> Index:
    """Loads an index folder of any backend.

    Every file is verified against the header before a backend reads it, so that damage is reported and does not crash.
    That is no protection against a stranger who writes header and files: FAISS does not claim that its reader is safe
    on hostile files, so load only folders whose origin you trust.

    Args:
      path: The folder `Index.save` wrote.

    Returns:
      The index.

    Raises:
      FormatError: Missing, damaged, of another kind or from a newer version.
      MissingDependencyError: The backend's package or device is missing.
    """
    backend = read_header(path)["backend"]
    if backend not in BACKENDS:
        raise FormatError(f"{path}: a {backend!r} index, which this jaxwhiten does not know. Upgrade jaxwhiten.")
    return BACKENDS[backend].load(path)
