"""Building an index: check the input, choose the code, store the vectors, describe the result."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten.codes import CODES, Code
from jaxwhiten.errors import check_integer, check_name
from jaxwhiten.options import Rule, check_options
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.backends import BACKENDS
from jaxwhiten.search.documents import Entries, new_names, unique_ids
from jaxwhiten.search.header import COPY, Header
from jaxwhiten.search.index import Index, new_index
from jaxwhiten.search.prepare import Coding, check_codes, check_vectors, choose, preparation
from jaxwhiten.search.store import Store
from jaxwhiten.space import Space, check_space
from jaxwhiten.text import TextList, Texts, as_texts
from jaxwhiten.types import Fields, IdsLike, Json, RowsLike
from jaxwhiten.vectors import space_of
from jaxwhiten.whitening.affine import Affine

if TYPE_CHECKING:
    from jaxwhiten.views import View

_RULES = (
    Rule(
        ("backend", "normalize", "whitening", "codes", "bytes", "rescore", "tuned", "options"),
        "`like` sets what an index stores: pass only space, documents, ids and metadata.",
        beside=("like",),
    ),
    Rule(("rescore",), "Codes alone cannot be rescored: omit `rescore`, or pass vectors.", beside=("coded",)),
    Rule(("normalize",), "Codes are of vectors of unit length: omit normalize=False.", beside=("codes", "bytes")),
)


def check_settings(
    name: str, options: Fields, codes: Any = None, rescore: str | None = None, *, coded: bool = True
) -> tuple[type[Store], Any]:
    """The store of a backend, and its options; InputError for an unknown name or option, before texts are encoded."""
    if isinstance(codes, str):
        check_name("code", codes, CODES)
    if rescore is not None:
        check_name("copy to rescore by", rescore, [COPY])
    check_name("search backend", name, BACKENDS)
    backend = BACKENDS[name]
    chosen = backend.with_options(options)
    backend.check_installed(name)
    return backend.store(coded), chosen


def build_index(
    vectors: RowsLike | Callable[[], RowsLike],
    backend: str = "faiss-flat",
    *,
    whitening: Any | None = None,
    normalize: bool = True,
    space: Space | None = None,
    documents: Texts | None = None,
    ids: IdsLike = None,
    metadata: Any = None,
    codes: str | Code | None = None,
    bytes: int | None = None,
    rescore: str | None = None,
    tuned: bool | None = None,
    like: Index | None = None,
    words: bool = True,
    columns: Fields | None = None,
    view: View | None = None,
    **options: Any,
) -> Index:
    """Builds an index of the named backend.

    >>> vectors = np.eye(4, dtype=np.float32)
    >>> scores, ids = build_index(vectors).search(vectors[2:3], k=1)
    >>> ids.tolist(), scores.tolist()
    ([[2]], [[1.0]])

    Args:
      vectors: [n, d] document vectors; a memory map of floats is read block by block. Codes are decoded, and with
        `codes=vectors.code` stored unchanged; queries are vectors of `Encoder.queries`. A function that gives them is
        called when all else was checked.
      backend: A name of `BACKENDS`; `faiss-ivf` stores codes alone.
      whitening: A fitted `Whitening` to put inside the index, or None.
      normalize: Whether vectors are scaled to unit length, so that scores are cosines.
      space: The space of the vectors; queries of another one raise an error. By default that which the vectors know,
        if `Encoder.encode` returned them; it is also checked.
      documents: The texts, one per vector, in any container of `jaxwhiten.text.as_texts`; a Series by position.
      ids: The documents' own ids, one per vector: strings, or integers from 0. Without them the index numbers its
        documents from 0, and never reuses a number.
      metadata: What else hits contain: a dictionary per vector, with names and values of JSON, such as `{"page": 3}`.
      codes: Stores documents as codes: a name of `jaxwhiten.codes.CODES`, or a fitted code of these vectors. None
        stores float32.
      bytes: Bytes per document; without `codes` it implies `codes="spectrum"`.
      rescore: `"float16"` keeps a copy of the vectors, which scores four candidates per result again. It stays in the
        file.
      tuned: Whether the encoder is fine-tuned for similarity. If not, its vectors are whitened before they are coded.
        By default it is assumed.
      like: An index whose backend, options, whitening, code and inverted lists this one shares, so that `load_index`
        searches both as one; only `space`, `documents`, `ids` and `metadata` can be passed with it.
      words: Whether the words of `documents` are indexed for hybrid search, where Python's SQLite has FTS5.
      view: Of the encoder of the vectors, for searches by texts.
      columns: Where the documents are from: `id`, the name of the column of their ids, and `keep`, those of metadata.
      **options: The backend's options, such as `nlist` and `nprobe` of `faiss-ivf`.

    Returns:
      The index, in a temporary file; `save` gives it one.

    Raises:
      InputError: The ids, texts or options do not fit the vectors.
      NonFiniteError: A vector holds NaN or an infinity.
      MissingDependencyError: The backend's package or device is missing.
    """
    start = time.perf_counter()
    check_process()

    # The input.
    coded = isinstance(codes, Code) and getattr(vectors, "code", None) is codes
    stores = {"whitening": whitening, "codes": codes, "bytes": bytes, "rescore": rescore, "tuned": tuned}
    stores |= {"options": options, "backend": backend != "faiss-flat", "normalize": not normalize}
    check_options(_RULES, {"like": like, "coded": coded, **stores})
    texts = None if documents is None else as_texts(documents, "document")
    given: Any = vectors if texts is None else texts
    own = None if ids is None else unique_ids(ids, len(given))
    if like is not None:
        return _build_like(like, vectors, space, texts, own, metadata)
    kind, chosen = check_settings(backend, options, codes, rescore, coded=codes is not None or bytes is not None)
    if bytes is not None:
        check_integer("bytes", bytes, least=1)
        codes = codes or "spectrum"
    if callable(vectors):
        vectors = vectors()
        start = time.perf_counter()
    space = _space_of(vectors, space)
    stored = None
    if coded:
        stored = np.asarray(vectors).view(np.uint8)
        vectors = check_codes("codes", vectors)
    else:
        vectors = check_vectors("document vectors", vectors)
    entries = Entries.of(vectors, own, texts, metadata)

    # The map, and the code.
    if codes is not None:
        coding = choose(codes, bytes, vectors, whitening, space=space, tuned=tuned)
    else:
        coding = Coding(preparation(whitening, vectors.shape[1], normalize))
    folder = None if space is None else Path(str(space.model))
    inside = _inside(whitening if coding.fitted is None else coding.fitted, coding.prepare, space)

    # The stored vectors.
    store = kind.build(vectors, chosen, coding, stored)

    # The description.
    header = Header(
        backend=backend,
        options=dataclasses.asdict(store.options),
        input_dimension=store.prepare.inputs,
        dimension=store.prepare.outputs,
        normalize=store.prepare.unit_length,
        space=space,
        folder=str(folder.resolve()) if folder is not None and folder.is_dir() else None,
        whitening=inside,
        codes=coding.record,
        rescore=rescore,
        id_type=entries.id_type,
        has_texts=entries.texts is not None,
        has_words=entries.texts is not None and words,
        names=None if entries.metadata is None else new_names(entries.metadata),
        columns=dict(columns or {}),
        notes=[*coding.notes, *store.notes],
        build_seconds=time.perf_counter() - start,
    )
    return new_index(header, store, entries, fitted=coding.fitted, view=view)


def _build_like(
    like: Index,
    vectors: RowsLike,
    space: Space | None,
    documents: TextList | None,
    ids: list[Any] | None,
    metadata: Any,
) -> Index:
    """`build_index` with what another index stores its documents by."""
    start = time.perf_counter()
    check_space("the index", like.space, space or space_of(vectors), "rebuild the index", strict=space is not None)
    like.check_kept(documents=documents, metadata=metadata)
    vectors = check_vectors("document vectors", vectors, like.input_dimension)
    entries = Entries.of(vectors, ids, documents, metadata)
    store = type(like.store).build(vectors, copy.copy(like.store.options), like.store.coding, None)
    fields = {field.name: getattr(like, field.name) for field in dataclasses.fields(Header)}
    fields |= {"notes": list(store.notes), "build_seconds": time.perf_counter() - start, "id_type": entries.id_type}
    return new_index(Header(**fields), store, entries, fitted=like.fitted)


def _space_of(vectors: RowsLike, space: Space | None) -> Space | None:
    """The space of documents: that which vectors know, which must be the given one."""
    known = space_of(vectors)
    if known is None:
        return space
    if space is not None:
        declared = dataclasses.replace(space, dimension=known.dimension)
        check_space("`space`", declared, known, "omit space", role="query")
    return known


def _inside(source: Any, prepare: Affine, space: Space | None) -> Json | None:
    """The record of the whitening inside the index; MismatchError if it, or the code, was fitted in another space."""
    if source is None:
        return None
    is_code = isinstance(source, Code)
    fitted_on = getattr(source, "space", None)
    check_space(f"the {'code' if is_code else 'whitening'}", fitted_on, space, "refit it", tolerated=("max_length",))
    if is_code:
        return None
    provenance = dict(getattr(source, "provenance", None) or {})
    return {"hash": prepare.hash(), "k": prepare.outputs, "provenance": provenance}
