"""Arrow tables of texts to tables of vectors, in which a row that is no text has an error, and to their moments."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from jaxwhiten import io
from jaxwhiten.arrays import as_floats, column_of, resolution, vectors_of
from jaxwhiten.codes import Code
from jaxwhiten.datasets.chunks import problem
from jaxwhiten.encoding.encoder import Encoder, encoder_of
from jaxwhiten.errors import DataError, NonFiniteError
from jaxwhiten.space import Space, check_space
from jaxwhiten.types import Fields
from jaxwhiten.vectors import with_space
from jaxwhiten.whitening import Moments

_THREADS = "NPROC", "RAYON_NUM_THREADS"  # read by XLA and `hardware.cores`, and by the tokenizers


def loaded(options: Fields) -> Encoder:
    """The encoder of a worker, with as many threads as it has CPUs."""
    _limit_threads()
    return Encoder.from_pretrained(**options)


def loaded_again(space: Space) -> Encoder:
    """The driver's encoder, by the space of its vectors; MismatchError if a worker reads another one."""
    _limit_threads()
    encoder = encoder_of(space)
    advice = "save the driver's with encoder.save(folder), where every worker can read it, and pass that folder"
    check_space("the driver's encoder", space, encoder.view.space, advice, role="query", strict=True)
    return encoder


def _limit_threads() -> None:
    """Uses as many threads as OMP_NUM_THREADS: Ray and Spark set it to a worker's CPUs."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    for name in _THREADS if limit.isdecimal() else ():
        os.environ.setdefault(name, limit)


def texts(batch: Any, column: str) -> list[Any]:
    """A column of an Arrow table, or of a list of dictionaries; what is not UTF-8 stays bytes."""
    import pyarrow as pa

    if isinstance(batch, list):
        return [row.get(column) for row in batch]
    values = _column(batch, column)
    try:
        return (values.cast(pa.string()) if pa.types.is_binary(values.type) else values).to_pylist()
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return [_decoded(value) for value in values.cast(pa.large_binary()).to_pylist()]


def _column(batch: Any, name: str) -> Any:
    """A column of an Arrow table, or of a list of dictionaries, null where a row lacks it; DataError if all do."""
    rows = isinstance(batch, list)
    if name not in (names := list(dict.fromkeys(key for row in batch for key in row)) if rows else batch.schema.names):
        raise DataError(f"The rows have no column {name!r}; the columns are {', '.join(map(str, names))[:400]}.")
    if rows:
        return [row.get(name) for row in batch]
    return batch[name]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        if value is None:
            return value
        return value.decode()
    except UnicodeDecodeError:
        return value


def embedded(
    encoder: Encoder, texts: Sequence[Any], beside: Fields, dtype: DTypeLike | None = None, **metadata: Any
) -> Any:
    """An Arrow table of the columns `beside`, the texts' `vector` or `code`, and `error`, which says why one has none.

    The schema's metadata say what the vectors, of a `dtype`, or codes are; more `metadata` is added.
    """
    import pyarrow as pa

    view = encoder.documents
    errors = [problem(text) for text in texts]
    coded = view.code is not None
    vectors = None
    while vectors is None:
        good = [row for row, error in enumerate(errors) if error is None]
        try:
            vectors = view([texts[row] for row in good], show_progress=False)
        except NonFiniteError as error:
            for row in error.rows:
                errors[good[row]] = "its vector contains NaN or inf"
    with np.errstate(over="ignore"):
        if not coded:
            vectors = np.asarray(vectors, dtype)
    if not coded and not (fits := np.isfinite(vectors).all(axis=1)).all():
        for row in np.flatnonzero(~fits).tolist():
            errors[good[row]] = f"its vector exceeds the range of {vectors.dtype}"
        vectors = vectors[fits]
    valid = np.array([error is None for error in errors], bool)
    encoded = column_of(vectors, None if valid.all() else valid)
    header = {"format_version": io.FORMAT_VERSION, "dimension": view.dimension, "dtype": vectors.dtype.name}
    header |= {"space": view.space.record(), **metadata}
    table = pa.table({**beside, "code" if coded else "vector": encoded, "error": pa.array(errors, pa.string())})
    return table.replace_schema_metadata({"jaxwhiten": json.dumps(header)})


def vectors(table: Any, code: Code | None = None) -> np.ndarray:
    """The vectors, or the codes with their code, of a table of `embedded` without bad rows."""
    name = "vector" if code is None else "code"
    metadata = json.loads(table.schema.metadata[b"jaxwhiten"])
    return with_space(vectors_of(table[name]).view(metadata["dtype"]), Space.of(metadata["space"]), code)


def sums(vectors: np.ndarray) -> Moments:
    """The moments of a block, in float64, so that parts merge to the moments of the corpus to the last digits."""
    floats = as_floats(vectors)
    moments = Moments().update(floats.astype(np.float64)) if len(vectors) else Moments()
    moments.eps = max(moments.eps, resolution(floats.dtype))
    return moments


def of_column(batch: Any, column: str) -> Moments:
    """The moments of the vectors in a column of an Arrow table, without null."""
    return sums(vectors_of(batch[column]))


def kept(id_column: str | None, keep: Sequence[str]) -> dict[str, str]:
    """The names of the columns that are kept with the vectors, and their old names."""
    return {**({"id": id_column} if id_column else {}), **{name: name for name in keep}}


def embedded_batch(encoder: Encoder, batch: Any, column: str, id_column: str | None, keep: Sequence[str]) -> Any:
    """`embedded` for a column of an Arrow table, or of a list of dictionaries, with its `kept` columns."""
    import pyarrow as pa

    beside = {name: _column(batch, old) for name, old in kept(id_column, keep).items()}
    beside = {name: pa.array(columns) if isinstance(columns, list) else columns for name, columns in beside.items()}
    return embedded(encoder, texts(batch, column), beside)
