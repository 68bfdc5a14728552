"""Ray: parts written by actors, and Ray Data sets embedded and fitted.

import ray
from jaxwhiten.runners.ray import embed, fit

vectors = embed(ray.data.read_parquet("corpus/"), "folder/", column="text", id_column="id")
moments = fit(vectors)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jaxwhiten.datasets.chunks import Chunk
from jaxwhiten.encoding import arrow
from jaxwhiten.errors import optional
from jaxwhiten.runners.parts import Parts
from jaxwhiten.whitening import grouped

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder

_THREADS = "NPROC", "RAYON_NUM_THREADS"  # read by XLA and `hardware.cores`, and by the tokenizers
_LOADING = ("pooling", "max_length", "dtype", "engine")  # attributes with which a worker loads the encoder


def write_parts(parts: Parts, encoder: Encoder, missing: Iterator[Chunk], workers: int) -> Iterator[dict[str, Any]]:
    """Writes parts by actors, each with its own encoder; at most two chunks wait for each actor."""
    ray = optional("ray", "ray", "Running on Ray")
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    # A worker that dies is restarted, and writes its chunk again under the same name.
    actor = ray.remote(max_restarts=-1, max_task_retries=3, **_options(ray, workers))(_Worker)
    how = {"model": encoder.name, **{name: getattr(encoder, name) for name in _LOADING}}
    told = how, encoder.encoding(), str(parts.folder.absolute())
    idle = [actor.remote(*told) for _ in range(workers)] * 2
    busy: dict[Any, Any] = {}
    for chunk in missing:
        if not idle:
            yield _next(ray, busy, idle)
        worker = idle.pop(0)
        busy[worker.write.remote(chunk)] = worker
    while busy:
        yield _next(ray, busy, idle)


def _options(ray: Any, workers: int, given: dict[str, Any] | None = None, others: int = 0) -> dict[str, Any]:
    """Options of actors: together no more than the cluster's CPUs but `others`, each with as many threads as CPUs."""
    there = ray.cluster_resources().get("CPU", 0) - others
    share = 1 if workers <= there else max(int(there / workers * 10_000), 0) / 10_000  # as fine as Ray takes it
    options = {"num_cpus": share, **(given or {})}
    if not {"num_gpus", "resources"} & set(options):
        threads = {name: os.environ.get(name) or str(max(int(options["num_cpus"]), 1)) for name in _THREADS}
        environment = options.get("runtime_env") or {}
        options["runtime_env"] = {**environment, "env_vars": {**threads, **environment.get("env_vars", {})}}
    return options


def _next(ray: Any, busy: dict[Any, Any], idle: list[Any]) -> dict[str, Any]:
    (done, *_), _ = ray.wait(list(busy))
    idle.append(busy.pop(done))
    found: dict[str, Any] = ray.get(done)
    return found


class _Worker:
    """Writes parts with an encoder in its own process."""

    def __init__(self, how: dict[str, Any], encoding: dict[str, Any], folder: str):
        self.encoder, self.parts = arrow.loaded(how, encoding), Parts(folder)

    def write(self, chunk: Chunk) -> dict[str, Any]:
        return self.parts.write(self.encoder, chunk)


def embed(
    dataset: Any,
    model: str,
    *,
    column: str = "text",
    id_column: str | None = None,
    keep: Sequence[str] = (),
    concurrency: int = 1,
    batch_size: int = 4096,
    ray_options: dict[str, Any] | None = None,
    **how: Any,
) -> Any:
    """Embeds a Ray Data set by actors, with one encoder each.

    Args:
      dataset: A Ray Data set with a column of texts.
      model: A hub id or folder that every worker can read.
      column: The texts.
      id_column: What becomes `id`.
      keep: Further columns to keep.
      concurrency: Actors.
      batch_size: Rows that an actor takes at a time.
      ray_options: Of `map_batches`, such as `{"num_gpus": 1}` or `{"resources": {"TPU": 1}}`. By default an actor asks
        for one CPU, or less where all together would leave none to read the data set, and runs one thread per CPU.
      **how: Of `Encoder.from_pretrained`.

    Returns:
      A lazy data set of `id`, the kept columns, `vector` (fixed-size lists) or `code` (fixed-size bytes), and `error`:
      why a row has none, or null. Arrow does not read null vectors of a fixed size back from Parquet: leave rows with
      an error out of what is written there.
    """
    ray = optional("ray", "ray", "Running on Ray")
    options = _options(ray, concurrency, ray_options, others=1)  # one CPU reads
    return dataset.map_batches(
        _Embedder,
        fn_constructor_args=({"model": model, **how}, column, id_column, keep),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=concurrency),
        **options,
    )


class _Embedder:
    def __init__(self, how: dict[str, Any], *columns: Any):
        self.encoder, self.columns = arrow.loaded(how), columns

    def __call__(self, batch: Any) -> Any:
        return arrow.embedded_batch(self.encoder, batch, *self.columns)


def fit(dataset: Any, column: str = "vector", by: str | None = None) -> Any:
    """The moments of the vectors of a Ray Data set, such as `embed` gives; rows without a vector are left out.

    With `by`, the name of a column, a dictionary of the moments of the rows of each of its values.
    """
    data: Any = optional("ray.data.aggregate", "ray", "Running on Ray", "ray")

    class FitMoments(data.AggregateFnV2):
        def __init__(self) -> None:
            super().__init__("moments", grouped.merged_bytes, on=None, ignore_nulls=True)

        def aggregate_block(self, block: Any) -> bytes:
            import ray.data.block as ray_block

            table = ray_block.BlockAccessor.for_block(block).to_arrow()
            return grouped.as_bytes(grouped.moments_of(table, column, by))

        def combine(self, total: bytes, other: bytes) -> bytes:
            return grouped.merged_bytes(total, other)

    found = dataset.select_columns([column, by] if by else [column]).aggregate(FitMoments())["moments"]
    return grouped.result(grouped.from_bytes(found), by)
