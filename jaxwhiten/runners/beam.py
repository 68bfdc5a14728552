"""Beam: a transform that embeds, and a `CombineFn` of moments.

import apache_beam as beam
from jaxwhiten.runners.beam import Embed, FitMoments

found = pipeline | beam.io.ReadFromParquetBatched("corpus/*.parquet") | Embed("folder/", id_column="id")
found.vectors | beam.CombineGlobally(FitMoments()) | beam.Map(lambda moments: moments.save("m.safetensors"))
found.dead | beam.Map(print)
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jaxwhiten.encoding import arrow
from jaxwhiten.errors import optional
from jaxwhiten.types import Json
from jaxwhiten.whitening import Moments

beam: Any = optional("apache_beam", "", "Running on Beam", "apache-beam")
shared: Any = optional("apache_beam.utils.shared", "", "Running on Beam", "apache-beam")


class Embed(beam.PTransform):
    """Embeds batches of rows: Arrow tables, or lists of dictionaries, such as `beam.BatchElements` makes of rows.

    The result has two collections. `vectors` are Arrow tables of `id`, the kept columns, and `vector` (fixed-size
    lists) or `code` (fixed-size bytes). `dead` are dictionaries of `id`, the kept columns, the text and `error`, a row
    that is no text each.

    Args:
      model: A hub id or folder that every worker can read; a worker's threads share one encoder.
      column, id_column, keep: The texts; what becomes `id`; further columns to keep.
      **how: Of `Encoder.from_pretrained`.
    """

    def __init__(
        self, model: str, *, column: str = "text", id_column: str | None = None, keep: Sequence[str] = (), **how: Any
    ):
        super().__init__()
        self.told = {"model": model, **how}, column, id_column, keep

    def expand(self, rows: Any) -> Any:
        return rows | beam.ParDo(_Embed(*self.told)).with_outputs("dead", main="vectors")


class _Embed(beam.DoFn):
    def __init__(self, how: Json, column: str, *beside: Any):
        super().__init__()
        self.how = how
        self.column = column
        self.beside = beside
        self.shared = shared.Shared()

    def setup(self) -> None:
        self.encoder = self.shared.acquire(lambda: arrow.loaded(self.how))

    def process(self, batch: Any) -> Iterator[Any]:
        table = arrow.embedded_batch(self.encoder, batch, self.column, *self.beside)
        if good := table.filter(table["error"].is_null()).drop_columns("error"):
            yield good
        if len(good) < len(table):
            names = [*arrow.kept(*self.beside), "error"]
            texts = arrow.texts(batch, self.column)
            for row, text in zip(table.select(names).to_pylist(), texts, strict=True):
                if row["error"] is not None:
                    yield beam.pvalue.TaggedOutput("dead", {**row, self.column: text})


class FitMoments(beam.CombineFn):
    """The moments of the vectors of Arrow tables, without null."""

    def __init__(self, column: str = "vector"):
        self.column = column

    def create_accumulator(self) -> Moments:
        return Moments()

    def add_input(self, total: Moments, batch: Any) -> Moments:
        return total.merge(arrow.of_column(batch, self.column))

    def merge_accumulators(self, parts: Iterable[Moments]) -> Moments:
        return functools.reduce(Moments.merge, parts, Moments())

    def extract_output(self, total: Moments) -> Moments:
        return total
