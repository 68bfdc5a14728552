"""`jaxwhiten index INPUT --output FILE`: encodes texts and builds a search index."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING, Any

from jaxwhiten.commands.arguments import (
    DEFAULT_MODEL,
    Guarded,
    Report,
    Source,
    add,
    add_model,
    add_tuned,
    check_new,
    check_sizes,
    encode,
    encode_view,
    load_encoder,
    load_whitening,
    values_of,
)
from jaxwhiten.commands.texts import add_texts, as_stored, ids_in, is_parts, nonempty, records
from jaxwhiten.errors import InputError
from jaxwhiten.options import Rule, check_options
from jaxwhiten.terminal import counted
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.search import Index
    from jaxwhiten.whitening import Moments, Whitening

# Options that an existing index has already fixed.
_OF_TEXTS = ("whitening", "whiten", "n_components", "gamma", "bytes", "codes", "max_length")
_FIXED = (*_OF_TEXTS, "rescore", "option")
_CHANGES = ("add", "remove", "remove_file")
_ANEW = ("like", *_CHANGES)
_RULES = (
    Rule(("remove",), "--remove needs the IDs of the documents to remove.", without=("input",)),
    Rule(("metadata",), "--keep is for texts of a table: omit it.", beside=("remove", "remove_file", "parts")),
    Rule(("strict",), "--strict is for --remove and --remove-file: omit it.", without=("remove", "remove_file")),
    Rule(_FIXED, "{beside} uses the settings of the existing index: omit {given}.", beside=_CHANGES),
    Rule((*_FIXED, "backend"), "`like` takes all settings from {like}: omit {given}.", beside=("like",)),
    Rule(
        ("shard",),
        "--shard needs a code or whitening that all parts share: fit one with `jaxwhiten fit`, and pass it with"
        " --whitening, or a model that ends with it with --model. Or pass the index of another part with --like.",
        without=("whitening", "model", *_ANEW),
    ),
    Rule(
        (*_OF_TEXTS, "ids", "metadata", "model"),
        "{input[0]}: codes are stored unchanged: omit {given}.",
        beside=("vectors",),
        without=_ANEW,
    ),
    Rule(
        ("model",),
        "{input[0]}: contains vectors already: omit --model, and pass its code with --whitening.",
        beside=("parts",),
        without=_ANEW,
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "texts, codes in a .npy file, or a folder written by `jaxwhiten embed`; with --remove, IDs"
    add_texts(parser, what, nargs="*")
    add(parser, "-o --output FILE", "the file to write, such as docs.db", type=Guarded, required=True)
    add_model(parser)
    parser.set_defaults(model=None)
    one = parser.add_mutually_exclusive_group()
    add(one, "--whitening FILE", "a saved whitening or code to put inside the index", type=Source)
    add(one, "--whiten", "fit a whitening on the texts themselves")
    add(parser, "-k --dimension K", "dimensions that the whitening keeps; default: all", dest="n_components", type=int)
    add(parser, "--gamma G", "fit a whitening with this exponent of the scaling, 0 to 1", type=float)
    add(parser, "--bytes N", "store each text in N bytes, by --codes; default: float32", type=int)
    add(parser, "--codes CODES", "the code: spectrum, int8, uint8, binary or ubinary; default with --bytes: spectrum")
    add_tuned(parser)
    add(parser, "--rescore COPY", "float16 or int8: keep a copy on disk to rescore the candidates")
    add(parser, "--backend BACKEND", "search backend; default: faiss-flat")
    add(parser, "--option NAME=NUMBER", "option of the backend, such as nprobe=10", action="append", default=[])
    whose = "by the settings of the index; with an ID column, documents whose ID is there are replaced"
    add(parser, "--id COLUMN", "ID column of a table; default: numbers from 0, or as the index", dest="ids")
    keep = "columns of a table to keep as metadata of the hits, such as title,date"
    add(parser, "--keep COLUMNS", keep, dest="metadata", type=_names)
    shard = "index one of N equal parts of the texts, with a code or whitening that was fitted before, or --like"
    add(parser, "--shard I/N", shard, type=_shard)
    add(parser, "--no-cache", "do not cache the vectors")
    one = parser.add_mutually_exclusive_group()
    add(one, "--add", f"add the texts to the existing index, {whose}")
    add(one, "--remove", "remove the documents with these IDs from the existing index")
    add(one, "--remove-file", "remove the documents whose IDs are in this file: lines, or the column of --id")
    alike = "store the texts as this index does: with its encoder, code, whitening and inverted lists"
    add(one, "--like FILE", alike, type=Source)
    add(parser, "--strict", "refuse to remove any document if an ID is not in the index")


def run(args: argparse.Namespace) -> Report:
    first = args.input[0] if args.input else ""
    of_codes = first.lower().endswith(".npy") and args.format is None
    check_options(_RULES, {**vars(args), "vectors": of_codes, "parts": is_parts(first)})
    if args.remove:
        return _remove(args)
    if len(args.input) != 1:
        listed = f"{len(args.input)}: {' '.join(args.input)[:200]}" if args.input else "none"
        raise InputError(f"Expected one input, got {listed}.")
    args.input = first
    if args.remove_file:
        return _remove(args)
    if args.add:
        return _add(args)

    from jaxwhiten.search.build import check_settings

    fits = args.n_components is not None or args.gamma is not None
    args.whiten = args.whiten or (fits and not args.whitening)
    args.backend = args.backend or "faiss-flat"
    options = values_of("--option", args.option, json.loads, "NAME=NUMBER, such as nprobe=10")
    check_settings(args.backend, options, args.codes, args.rescore)  # raises before the texts are encoded
    _check_output(args)
    if of_codes and not args.like:
        return _save(args, _of_codes(args, options), "")
    if is_parts(first):
        return _save(args, _of_parts(args, options), "")
    return _save(args, *_of_texts(args, options))


def _check_output(args: argparse.Namespace) -> None:
    """Raises InputError if the output is not to be replaced."""
    from jaxwhiten.search.header import check_index_file, is_index

    if is_index(check_index_file(args.output)):
        check_new(args.output, args.overwrite)


def _of_texts(args: argparse.Namespace, options: Json) -> tuple[Index, str]:
    """The index of texts, and a remark on the blank ones."""
    from jaxwhiten.search import BACKENDS, build_index, load_index
    from jaxwhiten.search.documents import unique_ids
    from jaxwhiten.search.text import index_of, view_for
    from jaxwhiten.whitening import Moments

    like = load_index(args.like, model=args.model) if args.like else None
    ids, texts, metadata, skipped = _texts(args)
    _ = None if ids is None else unique_ids(ids, len(texts))  # raises before the texts are encoded
    columns = {"id": args.ids, "keep": args.metadata}
    if like is not None:
        if like.views is None:
            raise InputError(f"{args.like}: does not record its encoder, so texts cannot be encoded as its were.")
        vectors = encode_view(args, view_for(like, like.views, "document"), texts, code=like.fitted)
        return build_index(vectors, like=like, documents=texts, ids=ids, metadata=metadata, columns=columns), skipped
    args.model = args.model or DEFAULT_MODEL
    encoder = load_encoder(args)
    whitening, codes = _fitted(args, encoder)
    BACKENDS[args.backend].check_stores(coded=bool(codes or args.bytes or encoder.view.head.code))
    floats = encoder.with_view(encoder.view.uncoded)
    check_sizes(args, floats.dimension)
    vectors = encode(args, floats, texts, "document", encoder.view.head.code)
    if args.whiten:
        whitening = _whitening(Moments(provenance=floats.documents.provenance()).update(vectors), args)
    index = index_of(
        encoder,
        texts,
        vectors,
        ids=ids,
        metadata=metadata,
        backend=args.backend,
        whitening=whitening,
        codes=codes,
        bytes=args.bytes,
        rescore=args.rescore,
        columns=columns,
        **options,
    )
    return index, skipped


def _fitted(args: argparse.Namespace, encoder: Encoder | None = None) -> tuple[Whitening | None, Any]:
    """The whitening to put inside the index, and its codes; --whitening may name either."""
    from jaxwhiten.whitening import Whitening

    fitted = load_whitening(args.whitening, args, encoder) if args.whitening else None
    if fitted is None or isinstance(fitted, Whitening):
        return fitted, args.codes
    if args.codes:
        raise InputError(f"{args.whitening}: contains a {fitted.name!r} code: omit `codes`.")
    return None, fitted


def _whitening(moments: Moments, args: argparse.Namespace) -> Whitening:
    """The whitening of --whiten."""
    from jaxwhiten.codes.fit import fit_whitening
    from jaxwhiten.terminal import note

    gamma = {} if args.gamma is None else {"gamma": args.gamma}
    whitening, why = fit_whitening(moments, tuned=args.tuned, n_components=args.n_components, **gamma)
    if why:
        note(why)
    return whitening


def _of_codes(args: argparse.Namespace, options: Json) -> Index:
    """The index of a file of codes; the provenance of their code defines how queries are encoded."""
    from jaxwhiten.commands.vectors import open_vectors
    from jaxwhiten.search import build_index

    vectors: Any = open_vectors(args.input)
    if (code := getattr(vectors, "code", None)) is None:
        raise InputError(f"{args.input}: contains vectors; expected texts, or codes with their code.")
    return build_index(vectors, args.backend, codes=code, rescore=args.rescore, **options)


def _of_parts(args: argparse.Namespace, options: Json) -> Index:
    """The index of a folder of `jaxwhiten embed`, with its ids, whitened by the moments of all parts."""
    from jaxwhiten.runners import Parts
    from jaxwhiten.search import build_index, load_index

    parts = Parts(args.input)
    if args.like:
        options = {"like": load_index(args.like, model=args.model)}
    else:
        whitening, codes = _fitted(args)
        if args.whiten:
            whitening = _whitening(parts.moments(), args)
        options |= {"backend": args.backend, "whitening": whitening, "codes": codes}
        options |= {"bytes": args.bytes, "rescore": args.rescore, "tuned": args.tuned}
    ids, vectors = parts.all()
    if (code := getattr(vectors, "code", None)) is not None:
        raise InputError(f"{args.input}: contains codes of {code.nbytes} bytes; expected shards of vectors.")
    part = _part(args, len(ids))
    return build_index(vectors[part], space=parts.plan.space, ids=ids[part], **options)


def _save(args: argparse.Namespace, index: Index, skipped: str) -> Report:
    """Saves a new index and reports it."""
    from jaxwhiten.terminal import note

    index.save(args.output)
    for text in index.notes:
        note(text)
    summary = f"{args.output}: {counted(index.size, 'texts')}{skipped}, {index.stored}, {_sizes(index)}"
    return Report(f'{summary}\nNext: jaxwhiten search {shlex.quote(args.output)} "a query"', _facts(args, index))


def _sizes(index: Index) -> str:
    """The size of the file of an index, and of its codes or vectors."""
    assert index.path is not None
    arrays = sum(array.nbytes for array in index.store.arrays.values())
    stored = "codes" if index.codes else "vectors"
    return f"{_size(index.path.stat().st_size)} ({stored} {_size(arrays)})"


def _size(count: int) -> str:
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e6:.1f} MB"


def _facts(args: argparse.Namespace, index: Index, **more: int) -> Json:
    return {"output": args.output, "texts": index.size, "dimensions": index.dimension, "bytes": index.nbytes, **more}


def _remove(args: argparse.Namespace) -> Report:
    """Runs --remove and --remove-file."""
    from jaxwhiten.search import load_index

    index = load_index(args.output)
    ids = as_stored(_ids(args), index) or []
    count = index.remove(ids, strict=args.strict)
    unknown = len({*ids}) - count
    absent = f", {counted(unknown, 'IDs')} not in the index" if unknown else ""
    return _changed(args, index, f"{counted(count, 'texts')} removed{absent}", removed=count, unknown=unknown)


def _add(args: argparse.Namespace) -> Report:
    """Runs --add, with the columns of the index where none are given."""
    from jaxwhiten.search import load_index
    from jaxwhiten.search.text import view_for

    index = load_index(args.output, model=args.model)
    args.ids = args.ids or (index.columns.get("id") if index.id_type else None)
    args.metadata = args.metadata or (index.columns.get("keep") if index.has_metadata else None)
    ids, texts, metadata, skipped = _texts(args)
    assert index.views is not None
    if index.has_metadata and metadata is None:
        raise InputError(f"{args.output}: the index stores metadata: pass its columns with --keep.")
    if metadata is not None and not index.has_metadata:
        raise InputError(f"{args.output}: the index stores no metadata: omit --keep.")
    ids = as_stored(ids, index)
    change = "add" if ids is None else "upsert"
    index.check_ids(change, ids, len(texts))
    vectors = encode_view(args, view_for(index, index.views, "document"), texts, code=index.fitted)
    replaced = 0
    if ids is None:
        index.add(vectors, documents=texts, metadata=metadata)
    else:
        replaced = index.upsert(ids, vectors, documents=texts, metadata=metadata)
    added = len(texts) - replaced
    others = f", {replaced:,} replaced" if replaced else ""
    return _changed(args, index, f"{counted(added, 'texts')} added{others}{skipped}", added=added, replaced=replaced)


def _changed(args: argparse.Namespace, index: Index, what: str, **counts: int) -> Report:
    text = f"{args.output}: {what}, {index.size:,} in all, {_sizes(index)}"
    return Report(text, _facts(args, index, **counts))


def _texts(args: argparse.Namespace) -> tuple[list[Any] | None, list[str], list[Any] | None, str]:
    """Ids, texts and metadata, without blank texts, and a remark on the number of blank ones."""
    from jaxwhiten.search.text import without_blank

    rows = list(records(args.input, args.format, args.column, args.ids, args.metadata or ()))
    rows = rows[_part(args, len(rows))]
    texts, ids, metadata, blank = without_blank(
        [row.text for row in rows],
        [row.id for row in rows] if args.ids else None,
        [row.metadata for row in rows] if args.metadata else None,
    )
    nonempty(iter(texts), args.input)
    advice = "`encode` keeps them: to align the two, remove them from the file"
    skipped = f" ({counted(blank, 'blank texts')} skipped; {advice})" if blank else ""
    return ids, texts, metadata, skipped


def _ids(args: argparse.Namespace) -> list[Any]:
    """The ids for --remove, or those in the file of --remove-file, exactly as written."""
    if args.remove:
        return list(map(str, args.input))
    if args.ids:
        from jaxwhiten.datasets.chunks import whole_id
        from jaxwhiten.datasets.tables import as_table, table_rows

        return [whole_id(id) for _, (id,) in table_rows(as_table(args.input), [args.ids], args.format)]
    return ids_in(args.input, args.format, args.column)


def _names(text: str) -> list[str]:
    """Names of columns, from "title,date"."""
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len({*names}) < len(names):
        raise argparse.ArgumentTypeError(f"expected names of columns, such as title,date, got {text!r:.80}")
    return names


def _shard(text: str) -> tuple[int, int]:
    """A part and the number of parts, from "2/8"."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected a part and the number of parts, such as 2/8, got {text!r:.80}")
    return int(number), int(count)


def _part(args: argparse.Namespace, rows: int) -> slice:
    """The rows that --shard chooses, or all: the parts follow each other and differ by at most one row."""
    number, count = args.shard or (1, 1)
    return slice((number - 1) * rows // count, number * rows // count)
