"""Beam: a transform that embeds, and a `CombineFn` of moments.

import apache_beam as beam
from jaxwhiten.runners.beam import Embed, FitMoments

found = pipeline | beam.io.ReadFromParquetBatched("corpus/*.parquet") | Embed("folder/", id_column="id")
found.vectors | beam.CombineGlobally(FitMoments()) | beam.Map(lambda moments: moments.save("m.safetensors"))
found.dead | beam.Map(print)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jaxwhiten.errors import optional
from jaxwhiten.runners import batches
from jaxwhiten.whitening import Moments

beam: Any = optional("apache_beam", "beam", "Running on Beam", "apache-beam")
shared: Any = optional("apache_beam.utils.shared", "beam", "Running on Beam", "apache-beam")

Batch = Any  # an Arrow table, as ReadFromParquetBatched gives, or a list of dictionaries, as BatchElements gives


class Embed(beam.PTransform):
    """Embeds batches of rows: Arrow tables, or lists of dictionaries, such as `beam.BatchElements` makes of rows.

    The result has two collections. `vectors` are Arrow tables of `id`, the kept columns, and `vector` (fixed-size
    lists) or `code` (fixed-size bytes). `dead` are dictionaries of `id`, the text and `error`, a row that is no text
    each.

    Args:
      model: A hub id or folder that every worker can read; a worker's threads share one encoder.
      column: The texts.
      id_column: What becomes `id`.
      keep: Further columns to keep.
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
    def __init__(self, how: dict[str, Any], column: str, id_column: str | None, keep: Sequence[str]):
        super().__init__()
        self.how, self.column, self.id_column, self.keep = how, column, id_column, keep
        self.shared = shared.Shared()

    def setup(self) -> None:
        self.encoder = self.shared.acquire(lambda: batches.loaded(self.how))

    def process(self, batch: Batch) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        names = {**({"id": self.id_column} if self.id_column else {}), **{name: name for name in self.keep}}
        if isinstance(batch, list):
            texts = [row.get(self.column) for row in batch]
            beside = {name: pa.array([row[source] for row in batch]) for name, source in names.items()}
        else:
            texts = batches.values(batch[self.column])
            beside = {name: batch[source] for name, source in names.items()}
        found = batches.embedded(self.encoder, texts, beside)
        errors = found["error"]
        for row in pc.indices_nonzero(errors.is_valid()).to_pylist():
            told = {name: found[name][row].as_py() for name in (*names, "error")}
            yield beam.pvalue.TaggedOutput("dead", {**told, self.column: texts[row]})
        if errors.null_count:
            yield found.filter(errors.is_null()).drop_columns("error")


class FitMoments(beam.CombineFn):
    """The moments of the vectors of Arrow tables, such as `Embed` gives.

    With `by`, the name of a column, a dictionary of the moments of the rows of each of its values.
    """

    def __init__(self, column: str = "vector", by: str | None = None):
        self.column, self.by = column, by

    def get_accumulator_coder(self) -> MomentsCoder:
        return MomentsCoder()

    def create_accumulator(self) -> batches.Groups:
        return {}

    def add_input(self, total: batches.Groups, batch: Any) -> batches.Groups:
        return batches.merged(total, batches.moments_of(batch, self.column, self.by))

    def merge_accumulators(self, parts: Iterable[batches.Groups]) -> batches.Groups:
        return batches.merged({}, *parts)

    def extract_output(self, total: batches.Groups) -> Any:
        return batches.result(total, self.by)


class MomentsCoder(beam.coders.Coder):
    """Moments, or those of groups, as safetensors bytes."""

    def encode(self, value: Moments | batches.Groups) -> bytes:
        return batches.as_bytes(value if isinstance(value, dict) else {None: value})

    def decode(self, encoded: bytes) -> batches.Groups:
        return batches.from_bytes(encoded)

    def is_deterministic(self) -> bool:
        return True
