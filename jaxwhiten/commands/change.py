"""`jaxwhiten add` and `jaxwhiten remove`: change the documents of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxwhiten.commands.arguments import Report, Source, TableOptions, encode_for
from jaxwhiten.commands.index import facts, sizes
from jaxwhiten.commands.texts import ALL, as_stored, ids_in, read_documents
from jaxwhiten.errors import InputError
from jaxwhiten.terminal import counted

if TYPE_CHECKING:
    from jaxwhiten.search import Index


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
    if opened.has_metadata and not keep:
        raise InputError(f"{index}: the index stores metadata: pass its columns with --keep.")
    if keep and not opened.has_metadata:
        raise InputError(f"{index}: the index stores no metadata: omit --keep.")
    ids, texts, metadata, skipped = read_documents(input, table, id, keep, ALL)
    ids = as_stored(ids, opened)
    opened.check_ids("add" if ids is None else "upsert", ids, len(texts))
    vectors = encode_for(opened, texts, cache=not no_cache)
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
    table: TableOptions = TableOptions(),
) -> Report:
    """Remove documents from an index by their IDs.

    Args:
      index: a file that `jaxwhiten index` wrote
      ids: the IDs of the documents to remove
      file: remove the documents whose IDs are in this file: lines, or a column of a table; - for stdin
      id: column of the IDs in a table
      strict: refuse to remove any document if an ID is not in the index

    Examples:
      jaxwhiten remove songs.db 17 18
      jaxwhiten remove songs.db --file old.csv --id id
    """
    if bool(ids) == bool(file):
        raise InputError("Pass the IDs of the documents to remove, or a `file` of them.")

    from jaxwhiten.search import load_index

    opened = load_index(index)
    removed = as_stored(_ids(file, table, id) if file else list(ids), opened) or []
    count = opened.remove(removed, strict=strict)
    unknown = len({*removed}) - count
    absent = f", {counted(unknown, 'IDs')} not in the index" if unknown else ""
    return _changed(index, opened, f"{counted(count, 'texts')} removed{absent}", removed=count, unknown=unknown)


def _ids(file: str, table: TableOptions, column: str | None) -> list[Any]:
    """The IDs in a file, exactly as written."""
    if not column:
        return ids_in(file, table.format, table.column)
    from jaxwhiten.datasets.chunks import whole_id
    from jaxwhiten.datasets.tables import as_table, table_rows

    return [whole_id(id) for _, (id,) in table_rows(as_table(file), [column], table.format)]


def _changed(path: str, index: Index, what: str, **counts: int) -> Report:
    return Report(f"{path}: {what}, {index.size:,} in all, {sizes(index)}", facts(path, index, **counts))
