"""`jaxwhiten index`, `add` and `remove`: build a search index of texts, and change its documents."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import (
    EncoderOptions,
    Output,
    Report,
    Source,
    TableOptions,
    check_new,
    check_sizes,
    encode,
)
from jaxwhiten.commands.texts import (
    InputDocuments,
    as_stored,
    ids_in,
    is_parts,
    read_documents,
)
from jaxwhiten.errors import InputError
from jaxwhiten.options import Rule, check_options
from jaxwhiten.terminal import counted
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.search import Index

_RULES = (
    Rule(
        ("bytes", "max_length", "rescore", "backend", "no_words"),
        "`like` takes all settings from {like}: omit {given}.",
        beside=("like",),
    ),
    Rule(("id", "keep", "no_words"), "{input}: contains vectors, and no texts: omit {given}.", beside=("parts",)),
    Rule(("model",), "{input}: contains vectors already: omit `model`.", beside=("parts",), without=("like",)),
)


def index(
    input: Source,
    /,
    *,
    output: Output,
    id: str | None = None,
    keep: Sequence[str] = (),
    no_words: bool = False,
    bytes: int | None = None,
    rescore: str | None = None,
    backend: str | None = None,
    like: Source | None = None,
    no_cache: bool = False,
    overwrite: bool = False,
    table: TableOptions = TableOptions(),
    encoder: EncoderOptions = EncoderOptions(),
) -> Report:
    """Encode texts and build a search index; --bytes fits a code for this index alone.

    Args:
      input: texts: .txt (one per line), .tsv, .csv, .jsonl or .parquet, a folder of such files, - for stdin; or a
        folder written by `jaxwhiten embed`
      output: the file to write, such as docs.db
      id: ID column of a table; default: numbers from 0
      keep: column of a table to keep as metadata of the hits; repeat it for more
      no_words: do not index the words of the texts; there is then no --hybrid, and the file is smaller
      bytes: store each text in this many bytes; default: those of the model's code, or float32
      rescore: float16: keep a copy on disk to rescore the candidates
      backend: search backend; default: faiss-flat
      like: store the texts as this index does: with its encoder, code, whitening and inverted lists
      no_cache: do not cache the vectors
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten index sentences.txt --model small/ -o docs.db
      jaxwhiten index songs.csv --id id --keep lang --keep date --bytes 96 -o songs.db
    """
    parts = is_parts(input)
    check_options(_RULES, {**vars(encoder), **locals()})

    from jaxwhiten.search import load_index
    from jaxwhiten.search.build import check_settings
    from jaxwhiten.search.header import check_index_file, is_index
    from jaxwhiten.terminal import note

    backend = backend or "faiss-flat"
    check_settings(backend, {}, None, rescore)  # raises before the texts are encoded
    if is_index(check_index_file(output)):
        check_new(output, overwrite)
    settings: Json = {"backend": backend, "bytes": bytes, "rescore": rescore}
    if like:
        settings = {"like": load_index(like, model=encoder.model)}
    skipped = ""
    if parts:
        built = _of_parts(input, settings)
    else:
        documents = read_documents(input, table, id, keep)
        skipped = documents.skipped
        settings |= {} if like else {"words": not no_words}
        settings["columns"] = {"id": id, "keep": list(keep) or None, "numbers": documents.numbers}
        built = _of_texts(documents, encoder, settings, cache=not no_cache)
    built.save(output)
    for text in built.notes:
        note(text)
    summary = f"{output}: {counted(built.size, 'texts')}{skipped}, {built.stored}, {sizes(built)}"
    return Report(f'{summary}\nNext: jaxwhiten search {shlex.quote(output)} "a query"', facts(output, built))


def add(
    index: Source,
    input: Source,
    /,
    *,
    id: str | None = None,
    keep: Sequence[str] = (),
    model: Source | None = None,
    no_cache: bool = False,
    table: TableOptions = TableOptions(),
) -> Report:
    """Add texts to an index, or replace those whose ID is there.

    The texts are encoded and stored as those of the index are.

    Args:
      index: a file that `jaxwhiten index` wrote
      input: texts: .txt (one per line), .tsv, .csv, .jsonl or .parquet, a folder of such files; - for stdin
      id: ID column of a table; default: as the index
      keep: column of a table to keep as metadata of the hits, repeated for more; default: as the index
      model: current location of the encoder, if it has moved
      no_cache: do not cache the vectors

    Examples:
      jaxwhiten add songs.db new.csv
    """
    from jaxwhiten.search import load_index

    opened = load_index(index, model=model)
    id = id or (opened.columns.get("id") if opened.id_type else None)
    keep = keep or (opened.columns.get("keep") if opened.has_metadata else None) or ()
    if opened.has_metadata != bool(keep):
        what = "metadata: pass its columns with --keep" if opened.has_metadata else "no metadata: omit --keep"
        raise InputError(f"{index}: the index stores {what}.")
    ids, texts, metadata, skipped, _ = read_documents(input, table, id, keep, opened.columns.get("numbers"))
    ids = as_stored(ids, opened)
    opened.check_ids("add" if ids is None else "upsert", ids, len(texts))
    vectors = encode(opened.view.float_documents, texts, cache=not no_cache)
    replaced = 0
    if ids is None:
        opened.add(vectors, documents=texts, metadata=metadata)
    else:
        replaced = opened.upsert(ids, vectors, documents=texts, metadata=metadata)
    added = len(texts) - replaced
    others = f", {replaced:,} replaced" if replaced else ""
    return _changed(index, opened, f"{counted(added, 'texts')} added{others}{skipped}", added=added, replaced=replaced)


def remove(
    index: Source,
    /,
    *ids: str,
    file: Source | None = None,
    id: str | None = None,
    strict: bool = False,
) -> Report:
    """Remove documents from an index by their IDs.

    Args:
      index: a file that `jaxwhiten index` wrote
      ids: the IDs of the documents to remove
      file: remove the documents whose IDs are in this file, one per line, or in a column of this table; - for stdin
      id: column of the IDs in the table
      strict: refuse to remove any document if an ID is not in the index

    Examples:
      jaxwhiten remove songs.db 17 18
      jaxwhiten remove songs.db --file old.csv --id id
    """
    if bool(ids) == bool(file):
        raise InputError("Pass the IDs of the documents to remove, or a `file` of them.")

    from jaxwhiten.search import load_index

    opened = load_index(index)
    for id_ in ids:
        if os.path.isfile(id_) and id_ not in opened:
            raise InputError(f"{id_}: is a file, and not an ID in the index: pass it as `file`.")
    removed = as_stored(ids_in(file, id) if file else list(ids), opened) or []
    count = opened.remove(removed, strict=strict)
    unknown = len({*removed}) - count
    absent = f", {counted(unknown, 'IDs')} not in the index" if unknown else ""
    return _changed(index, opened, f"{counted(count, 'texts')} removed{absent}", removed=count, unknown=unknown)


def _changed(path: str, index: Index, what: str, **counts: int) -> Report:
    return Report(f"{path}: {what}, {index.size:,} in all, {sizes(index)}", facts(path, index, **counts))


def _of_texts(documents: InputDocuments, encoder: EncoderOptions, settings: Json, *, cache: bool) -> Index:
    """The index of texts, by an encoder or as another index stores them; they are encoded when all else is checked."""
    from jaxwhiten.search import build_index
    from jaxwhiten.search.documents import unique_ids
    from jaxwhiten.search.text import index_of

    texts = documents.texts
    if documents.ids is not None:  # raises before a model is loaded
        unique_ids(documents.ids, len(texts))
    settings = {"ids": documents.ids, "metadata": documents.metadata, **settings}
    if "like" in settings:
        vectors = encode(settings["like"].view.float_documents, texts, cache=cache)
        return build_index(vectors, documents=texts, **settings)
    model = encoder.load()
    floats = model.view.float_documents
    check_sizes(floats.dimension, bytes=settings["bytes"])
    return index_of(model.view, texts, functools.partial(encode, floats, texts, cache=cache), **settings)


def _of_parts(path: str, settings: Json) -> Index:
    """The index of a folder of `jaxwhiten embed`, with its ids."""
    from jaxwhiten.runners import Parts
    from jaxwhiten.search import build_index

    parts = Parts(path)
    ids, vectors = parts.all()
    if "like" not in settings:
        settings = {**settings, "tuned": parts.plan.tuned, "codes": getattr(vectors, "code", None)}
    return build_index(vectors, space=parts.plan.space, ids=ids, **settings)


def sizes(index: Index) -> str:
    """The size of the file of an index, and of its codes or vectors."""
    assert index.path is not None
    arrays = sum(array.nbytes for array in index.store.arrays.values())
    stored = "codes" if index.codes else "vectors"
    return f"{_size(index.path.stat().st_size)} ({stored} {_size(arrays)})"


def _size(count: int) -> str:
    return f"{count / 1e3:.0f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def facts(path: str, index: Index, **more: int) -> Json:
    """What --json says of an index."""
    return {"output": path, "texts": index.size, "dimensions": index.dimension, "bytes": index.nbytes, **more}
