"""Ray: parts written by actors, and Ray Data sets embedded and fitted.

import ray
from jaxwhiten.runners.ray import embed, fit

vectors = embed(ray.data.read_parquet("corpus/"), "folder/", column="text", id_column="id")
moments = fit(vectors)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten.errors import InputError, optional
from jaxwhiten.runners.parts import Parts
from jaxwhiten.runners.rows import Chunk
from jaxwhiten.whitening import Moments

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder

_LOADING = ("pooling", "max_length", "dtype", "engine")  # attributes with which a worker loads the encoder


def write_parts(parts: Parts, encoder: Encoder, missing: Iterator[Chunk], workers: int) -> Iterator[dict[str, Any]]:
    """Writes parts by actors, each with its own encoder; at most two chunks wait for each actor."""
    ray = optional("ray", "ray", "Running on Ray")
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    # A worker that dies is restarted, and writes its chunk again under the same name.
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=3)(_Worker)
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


def _next(ray: Any, busy: dict[Any, Any], idle: list[Any]) -> dict[str, Any]:
    (done, *_), _ = ray.wait(list(busy))
    idle.append(busy.pop(done))
    found: dict[str, Any] = ray.get(done)
    return found


class _Worker:
    """Writes parts with an encoder in its own process."""

    def __init__(self, how: dict[str, Any], encoding: dict[str, Any], folder: str):
        self.encoder, self.parts = loaded(how, encoding), Parts(folder)

    def write(self, chunk: Chunk) -> dict[str, Any]:
        return self.parts.write(self.encoder, chunk)


def loaded(how: dict[str, Any], encoding: dict[str, Any] | None = None) -> Encoder:
    """The encoder of a worker; InputError if it differs from the driver's."""
    from jaxwhiten.encoding import Encoder

    encoder = Encoder.from_pretrained(**how)
    if encoding is not None and encoder.encoding() != encoding:
        raise InputError(
            f"{how['model']}: the encoder that a worker reads there is another than the driver's: save the driver's"
            " with encoder.save(folder), where every worker can read it, and give that folder."
        )
    return encoder


def embed(
    dataset: Any,
    model: str,
    *,
    column: str = "text",
    id_column: str | None = None,
    concurrency: int = 1,
    batch_size: int = 4096,
    ray_options: dict[str, Any] | None = None,
    **how: Any,
) -> Any:
    """Embeds a Ray Data set by actors, with one encoder each.

    `model` is a name or folder that every worker can read. `ray_options` are passed to `map_batches`, such as
    `{"num_gpus": 1}` or `{"resources": {"TPU": 1}}`, and `how` to `Encoder.from_pretrained`. Returns a lazy data set of
    `id` if there is an `id_column`, `vector` (fixed-size lists) or `code` (fixed-size bytes), and `error`: the reason
    why a row has no vector, or null.
    """
    ray = optional("ray.data", "ray", "Running on Ray", "ray")
    return dataset.map_batches(
        _Embedder,
        fn_constructor_args=({"model": model, **how}, column, id_column),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ray.ActorPoolStrategy(size=concurrency),
        **(ray_options or {}),
    )


class _Embedder:
    def __init__(self, how: dict[str, Any], column: str, id_column: str | None):
        self.encoder, self.column, self.id_column = loaded(how), column, id_column

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        from jaxwhiten.runners.parts import column_of

        texts = batch[self.column].to_pylist()
        good = np.array([isinstance(text, str) for text in texts], bool)
        prompt = self.encoder.prompt_for("document")
        found = self.encoder.encode([t for t in texts if isinstance(t, str)], prompt=prompt, show_progress=False)
        name = "vector" if self.encoder.head.code is None else "code"
        out = {"id": batch[self.id_column]} if self.id_column else {}
        errors = [None if ok else f"{text!r:.80} is not text" for ok, text in zip(good, texts, strict=True)]
        return pa.table({**out, name: column_of(np.asarray(found), name, good), "error": pa.array(errors, pa.string())})


def fit(dataset: Any, column: str = "vector") -> Moments:
    """The moments of the vectors of a Ray Data set, for instance from `embed`; rows without a vector are skipped."""
    data: Any = optional("ray.data.aggregate", "ray", "Running on Ray", "ray")

    class FitMoments(data.AggregateFnV2):
        def __init__(self) -> None:
            super().__init__(f"moments({column})", Moments, on=column, ignore_nulls=True)

        def aggregate_block(self, block: Any) -> Moments:
            import ray.data.block as ray_block

            found = ray_block.BlockAccessor.for_block(block).to_arrow()[column].combine_chunks().drop_null()
            flat = found.flatten().to_numpy().astype(np.float64)
            return Moments().update(flat.reshape(len(found), -1)) if len(found) else Moments()

        def combine(self, total: Moments, other: Moments) -> Moments:
            return Moments().merge(total).merge(other)

    return dataset.aggregate(FitMoments())[f"moments({column})"]
