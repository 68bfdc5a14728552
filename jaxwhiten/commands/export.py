"""`jaxwhiten export --output DIR`: an encoder with its whitening, for other libraries."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import (
    Guarded,
    Output,
    Report,
    Source,
    add,
    add_knobs,
    add_model,
    add_tuned,
    check_new,
    knobs,
    load_encoder,
    load_plain_whitening,
    one_line,
    say_gamma,
    values_of,
    whitened_encoder,
)
from jaxwhiten.errors import InputError, JaxwhitenError, OutputError, check_installed, check_name
from jaxwhiten.terminal import counted
from jaxwhiten.types import Json

if TYPE_CHECKING:
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
    "onnx": ("onnx", "export", "Exporting to ONNX"),
    "faiss": ("faiss", "cpu", "Exporting to FAISS", "faiss-cpu"),
}
FORMATS = ("sentence-transformers", "onnx", "faiss", *DATABASES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "--format FORMAT", f"{', '.join(FORMATS)}; default: {FORMATS[0]}", default=FORMATS[0])
    add(parser, "-o --output DIR", "the folder to write", type=Guarded, required=True)
    add(parser, "--whitening FILE", "a saved whitening; default: the one in the model's folder", type=Source)
    add_knobs(parser)
    add_model(parser)
    add_tuned(parser)
    add(parser, "--name NAME", "name of the model in its card; default: the folder's name")
    add(parser, "--score TASK=POINTS", 'for the card, such as "STS-B test=71.3"', action="append", default=[])
    add(parser, "--bytes N", "for a database: bytes per vector; default: 48, or those of the model's code", type=int)
    add(parser, "--from FILE", "for a database: index with which --into is made level", type=Source, dest="index")
    add(parser, "--into PLACE", "database to fill from --from: a file, folder or connection string", type=Guarded)
    add(parser, "--keep", "only add missing documents to --into: change and remove none")


def run(args: argparse.Namespace) -> Report:
    check_name("format", args.format, FORMATS)
    if args.format != FORMATS[0] and (args.score or args.name):
        raise InputError(f"--score and --name require --format {FORMATS[0]}.")
    if args.format not in DATABASES and (args.bytes or args.index or args.into or args.keep):
        raise InputError(
            f"--bytes, --from, --into and --keep require a database as the format: {', '.join(DATABASES)}."
        )
    kind = _KINDS.get(args.format, "database" if args.format in DATABASES else "model")
    Output(kind, folder=True)(args.output)
    check_new(args.output, args.overwrite)
    if args.format in _NEEDS:
        check_installed(*_NEEDS[args.format])
    if args.format in DATABASES:
        return _database(args)
    scores = values_of("--score", args.score, float, 'TASK=POINTS, such as "STS-B test=71.3"')

    from jaxwhiten import export

    if args.format == "faiss":
        whitening = (
            load_plain_whitening(args.whitening, args) if args.whitening else load_encoder(args).view.head.whitening
        )
        if whitening is None:
            raise InputError(f"{args.model}: contains no whitening; pass --whitening FILE.")
        changes = {} if args.whitening else knobs(args)
        export.save_faiss(args.output, whitening.with_params(**changes) if changes else whitening)
        what = "centering.vt, linear.vt (transforms) and index.faiss (an empty index that whitens)"
    elif args.format == "onnx":
        export.save_onnx(args.output, whitened_encoder(args))
        what = "model.onnx and the tokenizer"
    else:
        export.export_sentence_transformer(args.output, whitened_encoder(args), name=args.name, scores=scores)
        what = "a sentence-transformers folder; README.md is its card"
    return Report(f"{args.output}: {what}", {"output": args.output, "format": args.format})


def _fill(args: argparse.Namespace, index: Index, metadata: list[Json] | None, place: str) -> Changes:
    """Brings the texts of an index into the database; messages name it by `place`, without its password."""
    from jaxwhiten import io
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.export import databases

    small = Encoder.from_pretrained(Path(args.output) / databases.MODEL)
    documents = list(index)
    try:
        texts = [document.text or "" for document in documents]
        rows = [document.id for document in documents], texts, small.encode_document
        return databases.fill(args.output, args.into, *rows, keep=args.keep, metadata=metadata)
    except (JaxwhitenError, OSError, MemoryError):
        raise
    except Exception as error:  # of the database's client, which may repeat parts of a password
        reason = io.reason(error)
        for word in set(_WORDS(args.into)) - set(_WORDS(place)):
            reason = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "***", reason)
        raise OutputError(f"{place}: the database could not be filled ({reason}).") from None


def _database(args: argparse.Namespace) -> Report:
    """Writes a model folder and code for a database, and adds the texts of an index to the database."""
    if (args.index is None) != (args.into is None):
        raise InputError("--from and --into require each other: pass both, or neither.")
    if args.keep and not args.into:
        raise InputError("--keep requires --from and --into.")
    if refused := [f"`{name}`" for name in knobs(args) if name != "gamma"]:
        raise InputError(f"{', '.join(refused)}: --bytes determines the columns, and β is 1.")
    for module in _CLIENTS[args.format] if args.into else ():
        check_installed(module, "databases", f"Filling {args.format}")
    from jaxwhiten.export import databases
    from jaxwhiten.search import load_index

    index = load_index(args.index, read_only=True) if args.index else None
    if index is not None and not index.has_texts:
        raise InputError(f"{args.index}: stores no documents: build it with `jaxwhiten index`.")
    encoder = load_encoder(args)
    if args.whitening:
        encoder = encoder.with_view(encoder.view.unfitted).with_whitening(load_plain_whitening(args.whitening, args))
    stored = None if index is None or not index.has_metadata else [document.metadata or {} for document in index]
    whether = stored is not None
    settings = databases.save_database(
        args.output, encoder, args.format, args.bytes, gamma=args.gamma, metadata=whether
    )
    scaled = f"γ = {settings['gamma']:g}, " if "gamma" in settings else ""
    columns = f"{settings['columns']} columns, {scaled}{settings['quantiser']}"
    lines = [f"{args.output}: {columns}; recipe.py opens the database, model/ computes the vectors"]
    facts = {"output": args.output, "format": args.format, **settings}
    if args.gamma is None and "gamma" in settings:
        say_gamma(encoder.with_view(encoder.view.unfitted))
    if index is not None:
        place = one_line(args.into)
        changes = _fill(args, index, stored, place)
        same = index.size - changes.added - changes.changed
        others = "" if args.keep else f"{changes.changed:,} changed, {changes.removed:,} removed, "
        lines.append(f"{place}: {counted(changes.added, 'texts')} added, {others}{same:,} already there")
        facts |= {"database": place, **changes._asdict()}
    return Report("\n".join(lines), facts)
