"""Ray: parts written by actors, and Ray Data sets embedded and fitted.

from jaxwhiten.runners.ray import embed, fit

vectors = embed(ray.data.read_parquet("corpus/"), "folder/", column="text", id_column="id")
moments = fit(vectors)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxwhiten.datasets.chunks import Chunk
from jaxwhiten.encoding import Encoder, arrow
from jaxwhiten.errors import optional
from jaxwhiten.space import Space
from jaxwhiten.types import Json
from jaxwhiten.whitening import Moments


def write_parts(parts: Any, encoder: Encoder, missing: Iterator[Chunk], workers: int) -> Iterator[Json]:
    """Writes parts by actors, each with its own encoder; at most two chunks wait for each actor."""
    ray = optional("ray", "ray", "Running on Ray")
    from ray.util import ActorPool

    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    # A worker that dies is restarted, and writes its chunk again under the same name.
    actor = ray.remote(max_restarts=-1, max_task_retries=3, num_cpus=_share(ray, workers))(_Worker)
    there = copy.copy(parts)
    there.folder = parts.folder.absolute()
    pool: Any = ActorPool([actor.remote(encoder.documents.space, there) for _ in range(workers)] * 2)
    try:
        for chunk in missing:
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(lambda worker, chunk: worker.write.remote(chunk), chunk)
        while pool.has_next():
            yield pool.get_next_unordered()
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _share(ray: Any, actors: int, others: int = 0) -> float:
    """The CPUs to ask for an actor: 1, or less, as fine as Ray takes it, where all would leave less than `others`."""
    available = max(ray.cluster_resources().get("CPU", 0) - others, 0)
    if actors <= available:
        return 1
    return int(available / actors * 10_000) / 10_000


class _Worker:
    def __init__(self, space: Space, parts: Any):
        self.encoder = arrow.loaded_again(space)
        self.parts = parts

    def write(self, chunk: Chunk) -> Json:
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
    ray_options: Json | None = None,
    **how: Any,
) -> Any:
    """Embeds a Ray Data set by actors, with one encoder each.

    Args:
      dataset: A Ray Data set with a column of texts.
      model: A hub id or folder that every worker can read.
      column, id_column, keep: The texts; what becomes `id`; further columns to keep.
      concurrency, batch_size: Actors, and rows that an actor takes at a time.
      ray_options: Of `map_batches`, such as `{"num_gpus": 1}` or `{"resources": {"TPU": 1}}`. By default an actor asks
        for one CPU, or less where all together would leave none to read the data set, and runs as many threads.
      **how: Of `Encoder.from_pretrained`.

    Returns:
      A lazy data set of `id`, the kept columns, `vector` (fixed-size lists) or `code` (fixed-size bytes), and `error`:
      why a row has none, or null. Arrow does not read null vectors of a fixed size back from Parquet: leave rows with
      an error out of what is written there.
    """
    import ray

    return dataset.map_batches(
        _Embedder,
        fn_constructor_args=({"model": model, **how}, column, id_column, keep),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=concurrency),
        **{"num_cpus": _share(ray, concurrency, others=1), **(ray_options or {})},  # one CPU reads
    )


class _Embedder:
    def __init__(self, how: Json, *columns: Any):
        self.encoder = arrow.loaded(how)
        self.columns = columns

    def __call__(self, batch: Any) -> Any:
        return arrow.embedded_batch(self.encoder, batch, *self.columns)


def fit(dataset: Any, column: str = "vector") -> Moments:
    """The moments of the vectors of a Ray Data set, without null."""

    def of_block(block: Any) -> Any:
        import pyarrow as pa

        return pa.table({"moments": [arrow.of_column(block, column).packed().tobytes()]})

    parts = dataset.select_columns([column]).map_batches(of_block, batch_format="pyarrow", batch_size=None)
    packed = (np.frombuffer(row["moments"]) for row in parts.iter_rows())
    return functools.reduce(Moments.merge, map(Moments.unpacked, packed), Moments())
