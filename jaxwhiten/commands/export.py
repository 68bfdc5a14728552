"""`jaxwhiten export`: an encoder with its whitening, for other libraries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from jaxwhiten.commands.arguments import (
    EncoderOptions,
    Output,
    Place,
    Report,
    Source,
    new_folder,
    one_line,
    say_gamma,
)
from jaxwhiten.errors import InputError, JaxwhitenError, OutputError, check_installed, check_name
from jaxwhiten.terminal import counted
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.export.databases import Changes
    from jaxwhiten.search import Index

_WORDS = re.compile(r"[^\s:/@=&?'\"]+").findall
_KINDS = {"onnx": "onnx", "faiss": "faiss"}  # of folders that are no model
_CLIENTS = {  # of databases
    "pgvector": ("psycopg",),
    "qdrant": ("qdrant_edge",),
    "lancedb": ("lancedb", "lance"),
    "milvus": ("pymilvus", "milvus_lite"),
    "sqlite-vec": ("apsw", "sqlite_vec"),
}
DATABASES = tuple(_CLIENTS)
_NEEDS = {
    "onnx": ("onnx", "cpu", "Exporting to ONNX"),
    "faiss": ("faiss", "cpu", "Exporting to FAISS", "faiss-cpu"),
}
FORMATS = ("sentence-transformers", "onnx", "faiss", *DATABASES)


def export(
    *,
    output: Output,
    format: str = FORMATS[0],
    whitening: Source | None = None,
    bytes: int | None = None,
    index: Annotated[Source | None, Parameter(name="--from")] = None,
    into: Place | None = None,
    keep: bool = False,
    overwrite: bool = False,
    encoder: EncoderOptions = EncoderOptions(),
) -> Report:
    """Export an encoder and its whitening to other libraries.

    Args:
      output: the folder to write
      format: sentence-transformers, onnx, faiss, pgvector, qdrant, lancedb, milvus or sqlite-vec
      whitening: a saved whitening; default: the one in the model's folder
      bytes: for a database: bytes per vector; default: those of the model's code, 48 of a whitening, or all columns
      index: for a database: index with which --into is made level
      into: database to fill from --from: a file, folder or connection string
      keep: only add missing documents to --into: change and remove none
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten export --model small/ --format onnx -o onnx/
      jaxwhiten export --model small/ --format sqlite-vec --bytes 48 -o sqlite/ --from docs.db --into texts.db
    """
    check_name("format", format, FORMATS)
    database = format in DATABASES
    if (index is None) != (into is None) or (keep and not into):
        raise InputError("--from and --into require each other, and --keep both: pass both, or neither.")
    if not database and (bytes or index or into or keep):
        raise InputError(
            f"--bytes, --from, --into and --keep require a database as the format: {', '.join(DATABASES)}."
        )
    new_folder(output, _KINDS.get(format, "database" if database else "model"), overwrite=overwrite)
    if format in _NEEDS:
        check_installed(*_NEEDS[format])
    for module in _CLIENTS[format] if into else ():
        check_installed(module, "databases", f"Filling {format}")

    from jaxwhiten import export as exports
    from jaxwhiten.codes import Code, load_fitted
    from jaxwhiten.whitening import Whitening

    kinds = (Whitening,) if database or format == "faiss" else (Whitening, Code)
    fitted: Any = load_fitted(whitening, kinds) if whitening else None
    if format == "faiss":
        fitted = fitted or encoder.load().view.head.whitening
        if fitted is None:
            raise InputError(f"{encoder.name}: contains no whitening; pass --whitening FILE.")
        exports.save_faiss(output, fitted)
        what = "centering.vt, linear.vt (transforms) and index.faiss (an empty index that whitens)"
    else:
        model = encoder.load()
        if whitening and isinstance(fitted, Code):
            model = model.with_view(model.view.with_code(fitted, whitening))
        elif whitening:
            model = model.with_view(model.view.unfitted) if database else model
            model = model.with_whitening(fitted, where=whitening)
        if database:
            return _database(output, format, model, bytes, index, into, keep)
        if format == "onnx":
            exports.save_onnx(output, model)
            what = "model.onnx and the tokenizer"
        else:
            exports.export_sentence_transformer(output, model)
            what = "a sentence-transformers folder; README.md is its card"
    return Report(f"{output}: {what}", {"output": output, "format": format})


def _database(
    output: str,
    format: str,
    encoder: Encoder,
    bytes: int | None,
    source: str | None,
    into: str | None,
    keep: bool,
) -> Report:
    """Writes a model folder and code for a database, and adds the texts of an index to the database."""
    from jaxwhiten.export import databases
    from jaxwhiten.search import load_index

    index = load_index(source, read_only=True) if source else None
    if index is not None and not index.has_texts:
        raise InputError(f"{source}: stores no documents: build it with `jaxwhiten index`.")
    stored = None if index is None or not index.has_metadata else [document.metadata or {} for document in index]
    settings = databases.save_database(output, encoder, format, bytes, metadata=stored is not None)
    scaled = f"γ = {settings['gamma']:g}, " if "gamma" in settings else ""
    columns = f"{settings['columns']} columns, {scaled}{settings['quantizer']}"
    lines = [f"{output}: {columns}; recipe.py opens the database, model/ computes the vectors"]
    facts: Json = {"output": output, "format": format, **settings}
    if "gamma" in settings:
        say_gamma(encoder)
    if index is not None and into is not None:
        place = one_line(into)
        changes = _fill(output, into, index, stored, keep=keep)
        same = index.size - changes.added - changes.changed
        others = "" if keep else f"{changes.changed:,} changed, {changes.removed:,} removed, "
        lines.append(f"{place}: {counted(changes.added, 'texts')} added, {others}{same:,} already there")
        facts |= {"database": place, **changes._asdict()}
    return Report("\n".join(lines), facts)


def _fill(output: str, into: str, index: Index, metadata: list[Json] | None, *, keep: bool) -> Changes:
    """Brings the texts of an index into the database; messages name it without its password."""
    from jaxwhiten import io
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.export import databases

    small = Encoder.from_pretrained(Path(output) / databases.MODEL)
    documents = list(index)
    try:
        texts = [document.text or "" for document in documents]
        rows = [document.id for document in documents], texts, small.encode_document
        return databases.fill(output, into, *rows, keep=keep, metadata=metadata)
    except (JaxwhitenError, OSError, MemoryError):
        raise
    except Exception as error:  # of the database's client, which may repeat parts of a password
        place = one_line(into)
        reason = io.reason(error)
        for word in set(_WORDS(into)) - set(_WORDS(place)):
            reason = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "***", reason)
        raise OutputError(f"{place}: the database could not be filled ({reason}).") from None
