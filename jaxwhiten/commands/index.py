"""`jaxwhiten index`: encodes texts and builds a search index."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxwhiten.commands.arguments import (
    EncoderOptions,
    Output,
    Report,
    Source,
    TableOptions,
    check_new,
    check_sizes,
    encode,
    encode_for,
    load_whitening,
)
from jaxwhiten.commands.texts import ALL, InputDocuments, Shard, is_parts, read_documents, rows_of
from jaxwhiten.errors import Bounds, InputError
from jaxwhiten.options import Rule, check_options
from jaxwhiten.terminal import counted
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.search import Index

_OF_TEXTS = ("whitening", "bytes", "codes", "max_length")
_RULES = (
    Rule(
        (*_OF_TEXTS, "rescore", "option", "backend"),
        "`like` takes all settings from {like}: omit {given}.",
        beside=("like",),
    ),
    Rule(
        ("shard",),
        "--shard needs a code or whitening that all parts share: fit one with `jaxwhiten fit`, and pass it with"
        " --whitening, or a model that ends with it with --model. Or pass the index of another part with --like.",
        without=("whitening", "model", "like"),
    ),
    Rule(
        (*_OF_TEXTS, "id", "keep", "model", "like"),
        "{input}: codes are stored unchanged: omit {given}.",
        beside=("coded",),
    ),
    Rule(("keep",), "{input}: has no table: omit {given}.", beside=("parts",)),
    Rule(("no_words",), "{input}: contains no texts: omit {given}.", beside=("parts", "coded")),
    Rule(("no_words",), "`like` takes all settings from {like}: omit {given}.", beside=("like",)),
    Rule(
        ("model",),
        "{input}: contains vectors already: omit --model, and pass its code with --whitening.",
        beside=("parts",),
        without=("like",),
    ),
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
    codes: str | None = None,
    whitening: Source | None = None,
    rescore: str | None = None,
    backend: str | None = None,
    option: dict[str, float | bool] | None = None,
    shard: Shard | None = None,
    like: Source | None = None,
    no_cache: bool = False,
    overwrite: bool = False,
    table: TableOptions = TableOptions(),
    encoder: EncoderOptions = EncoderOptions(),
) -> Report:
    """Encode texts and build a search index; --bytes fits a code for this index alone.

    Args:
      input: texts: .txt (one per line), .tsv, .csv, .jsonl or .parquet, a folder of such files, - for stdin; codes in a
        .npy file; or a folder written by `jaxwhiten embed`
      output: the file to write, such as docs.db
      id: ID column of a table; default: numbers from 0
      keep: column of a table to keep as metadata of the hits; repeat it for more
      no_words: do not index the words of the texts; there is then no --hybrid, and the file is smaller
      bytes: store each text in this many bytes, by --codes; default: float32
      codes: the code: spectrum, int8, uint8, binary or ubinary; default with --bytes: spectrum
      whitening: a saved whitening or code to put inside the index
      rescore: float16 or int8: keep a copy on disk to rescore the candidates
      backend: search backend; default: faiss-flat
      option: option of the backend, such as --option.nprobe 10
      shard: index part I of N equal parts of the texts, such as 2 8, with a code or whitening fitted before, or --like
      like: store the texts as this index does: with its encoder, code, whitening and inverted lists
      no_cache: do not cache the vectors
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten index sentences.txt --model small/ -o docs.db
      jaxwhiten index songs.csv --id id --keep lang --keep date --bytes 96 -o songs.db
    """
    coded = input.lower().endswith(".npy") and table.format is None
    parts = is_parts(input)
    check_options(_RULES, {**vars(encoder), **locals()})
    shard = shard or ALL
    Bounds(1).check("shard", shard[1])
    Bounds(1, shard[1]).check("shard", shard[0])

    from jaxwhiten.search import load_index
    from jaxwhiten.search.build import check_settings
    from jaxwhiten.search.header import check_index_file, is_index
    from jaxwhiten.terminal import note

    backend = backend or "faiss-flat"
    options = {
        name: value if isinstance(value, bool) or value % 1 else int(value) for name, value in (option or {}).items()
    }
    check_settings(backend, options, codes, rescore)  # raises before the texts are encoded
    if is_index(check_index_file(output)):
        check_new(output, overwrite)
    settings: Json = {"backend": backend, "bytes": bytes, "rescore": rescore, **options, **_fitted(whitening, codes)}
    if like:
        settings = {"like": load_index(like, model=encoder.model)}
    skipped = ""
    if coded:
        built = _of_codes(input, backend, rescore, options)
    elif parts:
        built = _of_parts(input, shard, settings, encoder.tuned)
    else:
        documents = read_documents(input, table, id, keep, shard)
        skipped = documents.skipped
        settings |= {} if like else {"words": not no_words}
        columns = {"id": id, "keep": list(keep) or None}
        built = _of_texts(documents, encoder, {**settings, "columns": columns}, whitening, cache=not no_cache)
    built.save(output)
    for text in built.notes:
        note(text)
    summary = f"{output}: {counted(built.size, 'texts')}{skipped}, {built.stored}, {sizes(built)}"
    return Report(f'{summary}\nNext: jaxwhiten search {shlex.quote(output)} "a query"', facts(output, built))


def _fitted(whitening: str | None, codes: str | None) -> Json:
    """The whitening to put inside the index, and its codes; a file of --whitening may contain either."""
    from jaxwhiten.codes import Code

    fitted = load_whitening(whitening, {}) if whitening else None
    if not isinstance(fitted, Code):
        return {"whitening": fitted, "codes": codes}
    if codes:
        raise InputError(f"{whitening}: contains a {fitted.name!r} code: omit `codes`.")
    return {"codes": fitted}


def _of_texts(
    documents: InputDocuments, encoder: EncoderOptions, settings: Json, whitening: str | None, *, cache: bool
) -> Index:
    """The index of texts, by an encoder or as another index stores them."""
    from jaxwhiten.search import BACKENDS, build_index
    from jaxwhiten.search.documents import unique_ids
    from jaxwhiten.search.text import index_of

    ids, texts, metadata, _ = documents
    if ids is not None:  # raises before the texts are encoded
        unique_ids(ids, len(texts))
    if (like := settings.get("like")) is not None:
        vectors = encode_for(like, texts, cache=cache)
        return build_index(vectors, documents=texts, ids=ids, metadata=metadata, **settings)
    model = encoder.load()
    if whitening:
        model.view.check_fitted(settings.get("whitening") or settings["codes"], whitening, "document")
    coded = settings["codes"] or settings["bytes"] or model.view.head.code
    BACKENDS[settings["backend"]].store(coded=bool(coded))
    floats = model.with_view(model.view.uncoded)
    check_sizes(floats.dimension, bytes=settings["bytes"])
    vectors = encode(floats, texts, "document", model.view.head.code, cache=cache)
    return index_of(model, texts, vectors, ids=ids, metadata=metadata, **settings)


def _of_codes(path: str, backend: str, rescore: str | None, options: Json) -> Index:
    """The index of a file of codes; the provenance of their code defines how queries are encoded."""
    from jaxwhiten.codes.files import open_vectors
    from jaxwhiten.search import build_index

    vectors: Any = open_vectors(path)
    if (code := getattr(vectors, "code", None)) is None:
        raise InputError(f"{path}: contains vectors; expected texts, or codes with their code.")
    return build_index(vectors, backend, codes=code, rescore=rescore, **options)


def _of_parts(path: str, shard: Shard, settings: Json, tuned: bool | None) -> Index:
    """The index of a folder of `jaxwhiten embed`, with its ids."""
    from jaxwhiten.runners import Parts
    from jaxwhiten.search import build_index

    parts = Parts(path)
    ids, vectors = parts.all()
    if (code := getattr(vectors, "code", None)) is not None:
        raise InputError(f"{path}: contains codes of {code.nbytes} bytes; expected shards of vectors.")
    chosen = rows_of(shard, len(ids))
    if "like" not in settings:
        settings = {**settings, "tuned": parts.plan.tuned if tuned is None else tuned}
    return build_index(vectors[chosen], space=parts.plan.space, ids=ids[chosen], **settings)


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
