"""The compiled forward pass: from padded token ids to vectors, encoder and heads in one program on local devices.

Of a static encoder, one sparse product gathers the rows of all tokens of a block and averages them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxwhiten.arrays import normalize, pad_rows, row_bucket
from jaxwhiten.engines.batching import Batch, BatchResult, Layout
from jaxwhiten.engines.cache import LazyModel, load
from jaxwhiten.errors import check_name, unknown_name
from jaxwhiten.head import Heads, Mean, Normalize, Step, as_pytrees, run
from jaxwhiten.head.head import before_code
from jaxwhiten.models import EncoderConfig
from jaxwhiten.models.attention import BLOCK, Kernel, kernel_for
from jaxwhiten.models.folders import ModelFolder
from jaxwhiten.models.positions import Segments
from jaxwhiten.options import DTYPES
from jaxwhiten.runtime.hardware import check_devices, check_process, cores, keep_compiled
from jaxwhiten.text import TokenIds
from jaxwhiten.types import AnyArray, Float32, RowsLike

if TYPE_CHECKING:  # Flax makes weights and traces; a program that an earlier process kept needs neither
    from flax import nnx

    from jaxwhiten.models import PairClassifier, TransformerEncoder

# A single batch leaves a CPU's cores idle in turn; parallel batches fill the gaps. More threads gain little.
_CPU_BATCHES = 4
_LARGEST = 16_384  # rows of a static encoder, at most, in a program for the steps after the mean
as_pytrees()
_DEALT = PartitionSpec(None, "data")  # of arrays [row of its device, device, ...]
Graph = tuple["nnx.GraphDef[Any]", Any]  # of a module, with the structure of its state


def local_devices(device: str | jax.Device | None = None) -> list[jax.Device]:
    """The devices of this process with a given name.

    `"cpu"`, `"gpu"` or `"tpu"` are all devices of a platform; a number selects one of them (`"gpu:1"`). `"cuda"` is the
    same as `"gpu"`. None means all devices of the default platform.
    """
    if device is None:
        return jax.local_devices()
    if isinstance(device, jax.Device):
        return [device]
    platform, _, number = device.partition(":")
    with contextlib.suppress(RuntimeError, ValueError, IndexError):
        devices = jax.local_devices(backend=platform)
        return [devices[int(number)]] if number else devices
    here = (f"{each.platform}:{number}" for number, each in enumerate(jax.local_devices()))
    raise unknown_name("device", device, here)


class JAXEngine:
    """An encoder on JAX's devices, compiled ahead for every shape of a batch and every set of heads, see `Engine`.

    `dtype` is ignored: the model has its own. `kernel` computes the attention of long rows, if there is one.
    """

    name: ClassVar[str] = "jax"

    def __init__(
        self,
        model: TransformerEncoder | PairClassifier | LazyModel,
        max_length: int,
        device: str | jax.Device | None = None,
        dtype: str | None = None,
    ):
        from flax import nnx

        keep_compiled()
        devices = np.asarray(local_devices(device))
        platform = devices[0].platform
        self.device = device
        self.devices = len(devices)
        self.mesh = Mesh(devices, ("data",))
        self.config = model.config
        self.dtype = jnp.dtype(model.dtype).name
        self._dealt, self._everywhere = NamedSharding(self.mesh, _DEALT), NamedSharding(self.mesh, PartitionSpec())
        side_by_side = min(cores(), _CPU_BATCHES) if platform == "cpu" and self.devices == 1 else 1
        self._threads = ThreadPoolExecutor(side_by_side, "batch") if side_by_side > 1 else None
        self.in_flight = side_by_side + 2
        fused = max_length > BLOCK and not self.config.relative_buckets
        self.kernel = kernel_for(devices[0], self.dtype, self.config.head_size) if fused else None
        self.layout = Layout.on(platform, self.devices, max_length, long_rows=self.kernel is not None)
        self._compiled: dict[Any, Any] = {}
        self._locks: defaultdict[Any, threading.Lock] = defaultdict(threading.Lock)
        self._one_cpu = (platform, self.devices) == ("cpu", 1)
        self.cache = getattr(model, "cache", None)
        graph, state = nnx.split(model.loaded if isinstance(model, LazyModel) else model)
        leaves, structure = jax.tree.flatten(state)
        self._graph = graph, structure
        if self.dtype == "bfloat16":
            leaves = [leaf.astype(jnp.bfloat16, copy=False) for leaf in leaves]
        self._weights = self.place(leaves)

    @staticmethod
    def load(folder: ModelFolder, dtype: str) -> tuple[Any, EncoderConfig, Path]:
        check_devices()
        check_name("dtype", dtype, DTYPES)
        return load(folder, dtype)

    @staticmethod
    def is_out_of_memory(error: Exception) -> bool:
        return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

    def place(self, tree: Any) -> Any:
        """Copies parameters to all devices."""
        check_process()
        return jax.device_put(tree, self._everywhere)

    def model(self) -> Any:
        from flax import nnx

        return nnx.merge(self._graph[0], jax.tree.unflatten(self._graph[1], self._weights))

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, BatchResult]:
        return {}

    def start(self, batch: Batch, tokens: TokenIds, heads: Heads, *, alone: bool = False) -> Any:
        arguments = *batch.arrays(tokens, self.config.pad_token_id), batch.tokens, heads
        if alone or self._threads is None:
            return self._dispatch(*arguments)
        return self._threads.submit(self._dispatch, *arguments)

    def fetch(self, handle: Any) -> dict[str, BatchResult]:
        results: dict[str, BatchResult] = handle.result() if isinstance(handle, Future) else handle
        for x in (part for parts in results.values() for part in parts):
            x.copy_to_host_async()  # of all, before the first is waited for
        return {
            name: BatchResult(*(np.asarray(x).reshape(-1, x.shape[-1]) for x in parts))
            for name, parts in results.items()
        }

    def _dispatch(self, ids: np.ndarray, lengths: np.ndarray, tokens: int, heads: Heads) -> dict[str, BatchResult]:
        """Runs one batch and returns [row of its device, device, ..., d]; only a worker thread waits for the result.

        `lengths` has the lengths of all sentences of a row (`Segments`). The number of rows is a multiple of the
        devices; `tokens` is the room for tokens on all of them together (`batching`).
        """
        rows = ids.reshape(-1, self.devices, ids.shape[1]), lengths.reshape(-1, self.devices, *lengths.shape[1:])
        each = tokens // self.devices if tokens < ids.size else None
        if not self._one_cpu:  # which takes them in the call, and begins sooner than after a copy
            rows = jax.device_put(rows, self._dealt)
        arguments = (self._weights, *rows, tuple(heads.values()))  # programs do not know the names
        results = self._compile((*ids.shape, *lengths.shape[1:]), each, arguments)(*arguments)
        outputs = dict(zip(heads, results, strict=True))
        return outputs if self._threads is None else jax.block_until_ready(outputs)

    def _compile(self, shape: tuple[int, ...], tokens: int | None, arguments: tuple[Any, ...]) -> Any:
        """The program for a shape. The first batch of a shape compiles it; others of that shape wait."""
        leaves, structure = jax.tree.flatten(arguments[-1])
        key = (shape, tokens, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))

        with self._locks[key]:
            if key not in self._compiled:
                weights, *rows, heads = arguments
                rows = jax.device_put(rows, self._dealt)
                lowered = forward.lower(self._graph, weights, *rows, heads, tokens, self.mesh, self.kernel)
                self._compiled[key] = lowered.compile()
            return self._compiled[key]


@functools.partial(jax.jit, static_argnames=("graph", "tokens", "mesh", "kernel"))
def forward(
    graph: Graph,
    weights: list[jax.Array],
    ids: jax.Array,
    lengths: jax.Array,
    heads: tuple[tuple[Step, ...], ...],
    tokens: int | None,
    mesh: Mesh,
    kernel: Kernel | None,
) -> tuple[BatchResult, ...]:
    """Encoder and heads as one program: hidden states stay on their device, and unused ones are not computed."""
    from flax import nnx

    def on_device(weights: Any, ids: jax.Array, lengths: jax.Array, heads: Any) -> tuple[BatchResult, ...]:
        ids, lengths = ids[:, 0], lengths[:, 0]
        segments = Segments.of(lengths, ids.shape[1]) if lengths.ndim == 2 else None
        tokens_of_row = lengths[:, None] if segments is None else jnp.sum(lengths, axis=1, keepdims=True)
        mask = (jnp.arange(ids.shape[1]) < tokens_of_row).astype(jnp.int32)
        model = nnx.merge(graph[0], jax.tree.unflatten(graph[1], weights))
        output = model(ids, mask, tokens=tokens, segments=segments, kernel=kernel)

        def result(steps: tuple[Step, ...], code: Any) -> BatchResult:
            x = run(steps, output, mask, ids, segments)
            parts = x if code is None else code(x), jnp.isfinite(x).all(axis=-1, keepdims=True)
            return BatchResult(*(part.reshape(len(ids), 1, *lengths.shape[1:], part.shape[-1]) for part in parts))

        return tuple(result(*before_code(steps)) for steps in heads)

    everywhere = PartitionSpec()
    specs = (everywhere, _DEALT, _DEALT, everywhere)
    mapped = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=_DEALT, check_vma=kernel is None)
    return mapped(weights, ids, lengths, heads)


class TableEngine(JAXEngine):
    """A table of token vectors, averaged on the host: the tokenizer takes more time than the mean on any device.

    Heads that do not begin with the mean of the tokens use the compiled forward pass.
    """

    @functools.cached_property
    def table(self) -> Float32[np.ndarray, "vocab d"]:
        return np.asarray(self.model().embedding[...], np.float32)

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, BatchResult]:
        averaged = {name: steps[1:] for name, steps in heads.items() if isinstance(steps[0], Mean)}
        if not averaged:
            return {}
        means = mean_matrix(tokens, len(self.table)) @ self.table
        return {name: _after_pooling(steps, means) for name, steps in averaged.items()}


def _after_pooling(steps: tuple[Step, ...], means: Float32[np.ndarray, "n d"]) -> BatchResult:
    """Applies the head's steps after the mean; blocks are padded to few sizes, so that few programs are compiled."""
    finite = np.isfinite(means).all(axis=1, keepdims=True)
    if not steps:
        return BatchResult(means, finite)
    if len(steps) == 1 and isinstance(steps[0], Normalize) and finite.all():
        return BatchResult(normalize(means), finite)
    check_process()
    padded = jnp.asarray(pad_rows(means, row_bucket(len(means), _LARGEST)))
    return BatchResult(*(part[: len(means)] for part in jax.device_get(_applied(*before_code(steps), padded))))


@jax.jit
def _applied(steps: tuple[Step, ...], code: Step | None, x: RowsLike) -> BatchResult:
    for step in steps:
        x = step(x)
    return BatchResult(x if code is None else code(x), jnp.isfinite(x).all(axis=1, keepdims=True))


def mean_matrix(tokens: TokenIds, vocab: int) -> AnyArray:
    """The sparse float32 [n, vocab] matrix whose product with a table is the mean of every sentence's rows."""
    from scipy.sparse import csr_array

    shares = np.repeat((1 / np.maximum(tokens.lengths, 1)).astype(np.float32), tokens.lengths)
    ends = np.append(tokens.starts, len(tokens.flat))
    return csr_array((shares, tokens.flat, ends), shape=(len(tokens.lengths), vocab))
