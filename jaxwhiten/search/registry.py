"""Backends by name."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxwhiten.codes import CODES, Code, Quantiser
from jaxwhiten.errors import FormatError, InputError, unknown_name
from jaxwhiten.io import load_tensors
from jaxwhiten.search.base import Index
from jaxwhiten.search.coding import AUTO, choose
from jaxwhiten.search.faiss import FaissIndex
from jaxwhiten.search.header import ATTRIBUTES, DOCUMENTS, FITTED, read_documents, read_header, verified
from jaxwhiten.search.jax_flat import JaxIndex
from jaxwhiten.search.prepare import check_vectors, preparation
from jaxwhiten.search.rescore import Rescoring
from jaxwhiten.whitening import Whitening, check_provenance
from jaxwhiten.whitening.estimator import check_integer

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
    start = time.perf_counter()
    index = BACKENDS[backend]()
    check_vectors("document vectors", vectors)
    if documents is not None and len(documents) != len(vectors):
        raise InputError(f"{len(documents)} documents but {len(vectors)} document vectors.")
    index.backend, index.documents, index.rescore, index.notes = backend, documents, rescore, []
    index.size, index.input_dimension = vectors.shape
    index.prepare = preparation(whitening, index.input_dimension, normalize)
    if rescore is not None:
        index._rescoring = Rescoring.of(rescore, vectors, index.prepare)
    if codes is not None or bytes is not None or backend in index.halves:
        _set_codes(index, AUTO if codes is None else codes, bytes, vectors, whitening)
    index.dimension = index.prepare.outputs
    index.encoding = dict(encoding) if encoding is not None else None
    source = codes if isinstance(codes, Code) else whitening
    if source is not None:
        provenance = dict(getattr(source, "provenance", None) or {})
        check_provenance("The code" if source is codes else "The whitening", provenance, encoding or {})
        index.whitening = {"hash": index.prepare.hash(), "k": index.dimension, "provenance": provenance}
    defaults = index.default_options[backend]
    for name in options:
        if not defaults:
            raise InputError(f"The backend {backend} has no options, so not {name!r} either.")
        if name not in defaults:
            raise unknown_name(f"option of {backend}", name, defaults)
    index.options = {**defaults, **options}
    index._build(vectors)
    index.build_seconds = time.perf_counter() - start
    return index


def _set_codes(index: Index, codes: Any, size: int | None, vectors: np.ndarray, whitening: Any | None) -> None:
    if index.backend not in index.coded:
        raise InputError(f"{index.backend} keeps no codes; of these backends some do: {', '.join(index.coded)}.")
    if not index.prepare.unit_length:
        raise InputError("Codes are of vectors of unit length: leave normalize=True.")
    if size is not None:
        check_integer("bytes", size, least=1)
    trained, halves = index.trains.get(index.backend, ()), index.backend in index.halves
    coding = choose(codes, size, vectors, whitening, trained=trained, halves=halves)
    index._coding, index.codes, index.prepare, index.fitted = coding, coding.facts, coding.prepare, coding.fitted
    index.notes += coding.notes


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
    folder, header = Path(path), read_header(path)
    backend = header["backend"]
    if backend not in BACKENDS:
        raise FormatError(f"{path}: a {backend!r} index, which this jaxwhiten does not know. Upgrade jaxwhiten.")
    index = BACKENDS[backend]()
    for key in ATTRIBUTES:
        setattr(index, key, header[key])
    index.prepare = preparation(None, index.input_dimension, header["normalize"])
    files = {name: verified(folder, entry) for name, entry in header["files"].items()}
    if DOCUMENTS in files:
        index.documents = read_documents(files[DOCUMENTS], index.size)
    if FITTED in files:
        tensors, about = load_tensors(files[FITTED], kind=(Whitening.name, *CODES))
        index.fitted = CODES.get(about["kind"], Whitening).from_tensors(files[FITTED], tensors, about)
    try:
        if index.rescore is not None:
            index._rescoring = Rescoring.read(index.rescore, files, index.size, index.prepare)
        index._read(files)
    except (KeyError, OSError, EOFError, ValueError, TypeError, RuntimeError) as error:
        raise FormatError(f"{folder}: the index cannot be read ({error}). Build it again.") from error
    if index.whitening is not None and index.prepare.hash() != index.whitening.get("hash"):
        raise FormatError(f"{folder}: the whitening inside the index is not the one its header names.")
    return index
