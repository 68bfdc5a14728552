"""The compiled forward pass: from padded token ids to vectors, encoder and heads in one program on local devices."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxwhiten.engines.batching import Batch, Found, Layout
from jaxwhiten.errors import unknown_name
from jaxwhiten.head import Heads, Step, as_pytrees, run
from jaxwhiten.head.head import before_code
from jaxwhiten.models import EncoderConfig, PairClassifier, TransformerEncoder
from jaxwhiten.models.attention import BLOCK, Kernel, kernel_for
from jaxwhiten.models.folders import hashed
from jaxwhiten.models.loading import contents, load_model
from jaxwhiten.models.packing import Segments
from jaxwhiten.runtime import hardware
from jaxwhiten.runtime.hardware import check_process, cores, keep_compiled
from jaxwhiten.text import BulkTokenizer, TokenIds

# A single batch leaves a CPU's cores idle in turn; parallel batches fill the gaps. More threads gain little.
_CPU_BATCHES = 4
as_pytrees()
_DEALT = PartitionSpec(None, "data")  # of arrays [row of its device, device, ...]


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
        found = jax.local_devices(backend=platform)
        return [found[int(number)]] if number else found
    platforms = dict.fromkeys((jax.default_backend(), "cpu"))
    here = [f"{name}:{i}" for name in platforms for i in range(len(jax.local_devices(backend=name)))]
    raise unknown_name("device", device, here)


class JAXEngine:
    """An encoder on JAX's devices, compiled ahead for every shape of a batch and every set of heads, see `Engine`.

    `dtype` and `folder` are ignored: the model has its dtype, and JAX needs no files of its own. `kernel` computes the
    attention of long rows, if there is one.
    """

    name: ClassVar[str] = "jax"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")

    def __init__(
        self,
        model: TransformerEncoder | PairClassifier,
        max_length: int,
        device: str | jax.Device | None = None,
        dtype: str | None = None,
        folder: Path | None = None,
    ):
        keep_compiled()
        devices = np.asarray(local_devices(device))
        platform, self.devices, self.mesh = devices[0].platform, len(devices), Mesh(devices, ("data",))
        self.config, self.dtype = model.config, jnp.dtype(model.dtype).name
        self._dealt, self._everywhere = NamedSharding(self.mesh, _DEALT), NamedSharding(self.mesh, PartitionSpec())
        side_by_side = min(cores(), _CPU_BATCHES) if platform == "cpu" and self.devices == 1 else 1
        self._threads = ThreadPoolExecutor(side_by_side, "batch") if side_by_side > 1 else None
        self.in_flight = side_by_side + 2
        self.kernel = kernel_for(devices[0], self.dtype, self.config.head_size) if max_length > BLOCK else None
        self.layout = Layout.on(platform, self.devices, max_length, long_rows=self.kernel is not None)
        self._compiled: dict[Any, Any] = {}
        self._locks: defaultdict[Any, threading.Lock] = defaultdict(threading.Lock)
        graph, state = nnx.split(model)
        if self.dtype == "bfloat16":
            state = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16, copy=False), state)
        self._model = graph, self.place(state)

    @staticmethod
    def installed() -> str:
        return hardware.describe()

    @staticmethod
    def load(folder: Path, dtype: str) -> tuple[Any, EncoderConfig, Path]:
        return load_model(folder, dtype=dtype, narrow=True)

    @staticmethod
    def is_out_of_memory(error: Exception) -> bool:
        return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

    def place(self, tree: Any) -> Any:
        """Copies parameters to all devices."""
        check_process()
        return jax.device_put(tree, self._everywhere)

    def model(self) -> Any:
        return nnx.merge(*self._model)

    def save_beside(self, folder: Path) -> None:
        """Does nothing: JAX needs no files of its own."""

    def digest(self, tokenizer: BulkTokenizer, after: Sequence[bytes]) -> str:
        return hashed(itertools.chain([tokenizer.to_json().encode()], contents(self.config, self._model[1]), after))

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, Found]:
        return {}

    def start(self, batch: Batch, tokens: TokenIds, heads: Heads, *, alone: bool = False) -> Any:
        arguments = *batch.arrays(tokens, self.config.pad_token_id), batch.tokens, heads
        if alone or self._threads is None:
            return self._dispatch(*arguments)
        return self._threads.submit(self._dispatch, *arguments)

    def fetch(self, handle: Any) -> dict[str, Found]:
        return _rows(handle.result() if isinstance(handle, Future) else handle)

    def _dispatch(self, ids: np.ndarray, lengths: np.ndarray, tokens: int, heads: Heads) -> dict[str, Found]:
        """Runs one batch and returns [row of its device, device, ..., d]; only a worker thread waits for the result.

        `lengths` has the lengths of all sentences of a row (`Segments`). The number of rows is a multiple of the
        devices; `tokens` is the room for tokens on all of them together (`batching`).
        """
        rows = ids.reshape(-1, self.devices, ids.shape[1]), lengths.reshape(-1, self.devices, *lengths.shape[1:])
        each = tokens // self.devices if tokens < ids.size else None
        arguments = (self._model[1], *jax.device_put(rows, self._dealt), dict(heads))
        found = self._compile((*ids.shape, *lengths.shape[1:]), each, arguments)(*arguments)
        return found if self._threads is None else jax.block_until_ready(found)

    def _compile(self, shape: tuple[int, ...], tokens: int | None, arguments: tuple[Any, ...]) -> Any:
        """The program for a shape. The first batch of a shape compiles it; others of that shape wait."""
        leaves, structure = jax.tree.flatten(arguments[-1])
        key = (shape, tokens, structure, tuple(leaf.shape for leaf in leaves))
        with self._locks[key]:
            if key not in self._compiled:
                lowered = forward.lower(self._model[0], *arguments, tokens, self.mesh, self.kernel)
                self._compiled[key] = lowered.compile()
            return self._compiled[key]


def _rows(found: dict[str, Found]) -> dict[str, Found]:
    """Waits for the vectors and returns them in the order of the rows."""
    return jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), jax.device_get(found))


@functools.partial(jax.jit, static_argnames=("graph", "tokens", "mesh", "kernel"))
def forward(
    graph: nnx.GraphDef[Any],
    state: nnx.State[Any, Any],
    ids: jax.Array,
    lengths: jax.Array,
    heads: dict[str, tuple[Step, ...]],
    tokens: int | None,
    mesh: Mesh,
    kernel: Kernel | None = None,
) -> dict[str, Found]:
    """Encoder and heads as one program: hidden states stay on their device, and unused ones are not computed."""

    def on_device(state: Any, ids: jax.Array, lengths: jax.Array, heads: Any) -> dict[str, Found]:
        ids, lengths = ids[:, 0], lengths[:, 0]
        segments = Segments.of(lengths, ids.shape[1]) if lengths.ndim == 2 else None
        tokens_of_row = lengths[:, None] if segments is None else jnp.sum(lengths, axis=1, keepdims=True)
        mask = (jnp.arange(ids.shape[1]) < tokens_of_row).astype(jnp.int32)
        output = nnx.merge(graph, state)(ids, mask, tokens=tokens, segments=segments, kernel=kernel)

        def found(steps: tuple[Step, ...], code: Any) -> Found:
            x = run(steps, output, mask, ids, segments)
            parts = x if code is None else code(x), jnp.isfinite(x).all(axis=-1, keepdims=True)
            return Found(*(part.reshape(len(ids), 1, *lengths.shape[1:], part.shape[-1]) for part in parts))

        return {name: found(*before_code(steps)) for name, steps in heads.items()}

    everywhere = PartitionSpec()
    specs = (everywhere, _DEALT, _DEALT, everywhere)
    mapped = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=_DEALT, check_vma=kernel is None)
    return mapped(state, ids, lengths, heads)
