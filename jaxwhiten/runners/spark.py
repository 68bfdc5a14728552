"""Spark: data frames embedded, fitted and whitened.

from jaxwhiten.runners.spark import embed, fit, whiten

vectors = embed(spark.read.parquet("corpus/"), "folder/", column="text", id_column="id")
small = whiten(vectors, Whitening.from_moments(fit(vectors), n_components=256))
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten.arrays import column_of, vectors_of
from jaxwhiten.encoding import arrow
from jaxwhiten.errors import optional
from jaxwhiten.whitening import grouped

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.whitening import Whitening

_ON_SPARK = "spark", "Running on Spark", "pyspark"


@functools.lru_cache(maxsize=1)  # Spark uses a Python process for many tasks
def _encoder(how: tuple[tuple[str, Any], ...]) -> Encoder:
    return arrow.loaded(dict(how))


def embed(
    frame: Any,
    model: str,
    *,
    column: str = "text",
    id_column: str | None = None,
    keep: Sequence[str] = (),
    **how: Any,
) -> Any:
    """Embeds a data frame, with one encoder in each Python process of the executors.

    The driver reads the encoder once, to know the columns. `spark.sql.execution.arrow.maxRecordsPerBatch` is how many
    rows are encoded at a time.

    Args:
      frame: A Spark data frame with a column of texts.
      model: A hub id or folder that driver and executors can read.
      column: The texts.
      id_column: What becomes `id`.
      keep: Further columns to keep.
      **how: Of `Encoder.from_pretrained`.

    Returns:
      A data frame of `id`, the kept columns, `vector` (array of float) or `code` (binary), and `error`: why a row has
      none, or null.
    """
    types = optional("pyspark.sql.types", *_ON_SPARK)
    told = tuple({"model": model, **how}.items())
    coded = _encoder(told).head.code is not None
    names = arrow.kept(id_column, keep)
    fields = [types.StructField(name, frame.schema[source].dataType) for name, source in names.items()]
    kind = types.BinaryType() if coded else types.ArrayType(types.FloatType(), False)
    fields += [types.StructField("code" if coded else "vector", kind), types.StructField("error", types.StringType())]

    def embed_partition(partition: Iterator[Any]) -> Iterator[Any]:
        for batch in partition:
            found = arrow.embedded_batch(_encoder(told), batch, column, id_column, keep)
            yield from _as_spark(found)

    return frame.select(column, *dict.fromkeys(names.values())).mapInArrow(embed_partition, types.StructType(fields))


def _as_spark(table: Any) -> Iterator[Any]:
    """Record batches without metadata and fixed sizes, which Spark has no types for."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_fixed_size_list(field.type):
            table = table.set_column(place, field.name, table[place].cast(pa.list_(field.type.value_type)))
        elif pa.types.is_fixed_size_binary(field.type):
            table = table.set_column(place, field.name, table[place].cast(pa.binary()))
    return iter(table.replace_schema_metadata(None).to_batches())


def fit(frame: Any, column: str = "vector", by: str | None = None, depth: int = 2) -> Any:
    """The moments of the vectors of a data frame, such as `embed` gives; rows without a vector are left out.

    With `by`, the name of a column, a dictionary of the moments of the rows of each of its values. `depth` is the
    tree's, over the partitions.
    """
    optional("pyspark", *_ON_SPARK)

    def fit_partition(partition: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        total = grouped.merged({}, *(grouped.moments_of(batch, column, by) for batch in partition))
        yield pa.RecordBatch.from_pydict({"moments": [grouped.as_bytes(total)]})

    parts = frame.select(column, *([by] if by else [])).mapInArrow(fit_partition, "moments binary").rdd
    total = parts.map(lambda row: bytes(row[0])).treeAggregate(
        grouped.merged_bytes(), grouped.merged_bytes, grouped.merged_bytes, depth
    )
    return grouped.result(grouped.from_bytes(total), by)


def whiten(frame: Any, whitening: Whitening, column: str = "vector") -> Any:
    """The data frame with the vectors of a column whitened; null stays null."""
    types = optional("pyspark.sql.types", *_ON_SPARK)
    kind = types.ArrayType(types.FloatType(), False)
    schema = types.StructType([f if f.name != column else types.StructField(column, kind) for f in frame.schema])

    def whiten_partition(partition: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in partition:
            table, there = pa.Table.from_batches([batch]), batch[column].is_valid().to_numpy(zero_copy_only=False)
            rows = vectors_of(batch[column]) if there.any() else np.zeros((0, whitening.n_features_in_))
            found = column_of(whitening.transform(rows).astype(np.float32), there)
            yield from _as_spark(table.set_column(batch.schema.get_field_index(column), column, found))

    return frame.mapInArrow(whiten_partition, schema)
