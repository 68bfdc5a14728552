"""Spark: data frames embedded, fitted and whitened.

from jaxwhiten.runners.spark import embed, fit, whiten

vectors = embed(spark.read.parquet("corpus/"), "folder/", column="text", id_column="id")
small = whiten(vectors, Whitening.from_moments(fit(vectors), n_components=256))
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxwhiten.arrays import column_of, vectors_of
from jaxwhiten.encoding import Encoder, arrow
from jaxwhiten.whitening import Moments, Whitening


@functools.lru_cache(maxsize=1)  # Spark uses a Python process for many tasks
def _encoder(how: tuple[tuple[str, Any], ...]) -> Encoder:
    return arrow.loaded(dict(how))


def embed(
    frame: Any, model: str, *, column: str = "text", id_column: str | None = None, keep: Sequence[str] = (), **how: Any
) -> Any:
    """Embeds a data frame, with one encoder in each Python process of the executors.

    The driver reads the encoder once, to know the columns. `spark.sql.execution.arrow.maxRecordsPerBatch` is how many
    rows are encoded at a time.

    Args:
      frame: A Spark data frame with a column of texts.
      model: A hub id or folder that driver and executors can read.
      column, id_column, keep: The texts; what becomes `id`; further columns to keep.
      **how: Of `Encoder.from_pretrained`.

    Returns:
      A data frame of `id`, the kept columns, `vector` (array of float) or `code` (binary), and `error`: why a row has
      none, or null.
    """
    settings = tuple({"model": model, **how}.items())
    names = arrow.kept(id_column, keep)
    if _encoder(settings).view.head.code is None:
        result = {"vector": "array<float>"}
    else:
        result = {"code": "binary"}
    kinds = {name: frame.schema[source].dataType.simpleString() for name, source in names.items()}
    ddl = _ddl({**kinds, **result, "error": "string"})

    def embed_partition(partition: Iterator[Any]) -> Iterator[Any]:
        for batch in partition:
            yield from _as_spark(arrow.embedded_batch(_encoder(settings), batch, column, id_column, keep))

    return frame.select(column, *dict.fromkeys(names.values())).mapInArrow(embed_partition, ddl)


def _ddl(kinds: dict[str, str]) -> str:
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in kinds.items())


def _as_spark(table: Any) -> Iterator[Any]:
    """Record batches without metadata and fixed sizes, which Spark has no types for."""
    import pyarrow as pa

    free = {"vector": pa.list_(pa.float32()), "code": pa.binary()}
    schema = pa.schema([(field.name, free.get(field.name, field.type)) for field in table.schema])
    return iter(table.cast(schema).to_batches())


def fit(frame: Any, column: str = "vector", depth: int = 2) -> Moments:
    """The moments of the vectors of a data frame, without null; `depth` is the tree's, over the partitions."""

    def fit_partition(partition: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        total = functools.reduce(Moments.merge, (arrow.of_column(batch, column) for batch in partition), Moments())
        yield pa.RecordBatch.from_pydict({"moments": [total.packed().tobytes()]})

    parts = frame.select(column).mapInArrow(fit_partition, "moments binary").rdd
    parts = parts.map(lambda row: Moments.unpacked(np.frombuffer(row[0])))
    return parts.treeAggregate(Moments(), Moments.merge, Moments.merge, depth)


def whiten(frame: Any, whitening: Whitening, column: str = "vector") -> Any:
    """The data frame with the vectors of a column whitened; null stays null."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema}

    def whiten_partition(partition: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in partition:
            table = pa.Table.from_batches([batch])
            valid = batch[column].is_valid().to_numpy(zero_copy_only=False)
            if valid.any():
                rows = vectors_of(batch[column])
            else:
                rows = np.zeros((0, whitening.n_features_in_))
            whitened = column_of(whitening.transform(rows).astype(np.float32), valid)
            whitened = whitened.cast(pa.list_(pa.float32()))
            yield from table.set_column(table.column_names.index(column), column, whitened).to_batches()

    return frame.mapInArrow(whiten_partition, _ddl({**kinds, column: "array<float>"}))
