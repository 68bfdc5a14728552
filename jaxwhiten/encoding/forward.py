"""The compiled function: padded token ids in, vectors out, encoder and heads as one program on all local devices."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxwhiten.encoding.batching import Batch, Layout
from jaxwhiten.errors import unknown_name
from jaxwhiten.head import Heads, Step, run
from jaxwhiten.models import PairClassifier, TransformerEncoder
from jaxwhiten.models.attention import BLOCK, Kernel, kernel_for
from jaxwhiten.models.loading import contents
from jaxwhiten.models.packing import Segments
from jaxwhiten.runtime.hardware import check_process, cores
from jaxwhiten.text import TokenIds

# A CPU's operations leave its cores idle in turn; batches side by side fill the gaps. More threads gain little.
_CPU_BATCHES = 4
_DEALT = PartitionSpec(None, "data")  # of arrays [row of its device, device, ...]


def local_devices(device: str | jax.Device | None = None) -> list[jax.Device]:
    """The devices of this process that a name means.

    `"cpu"`, `"gpu"` or `"tpu"` is all of a platform, with a number one of them (`"gpu:1"`; `"cuda"` is another word for
    `"gpu"`), and None all of the default platform.
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

    `dtype` and `folder` are not used: the model has its dtype, and its folder all that JAX needs. `kernel` is for the
    attention of long rows, or None.
    """

    name: ClassVar[str] = "jax"
    facts: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        model: TransformerEncoder | PairClassifier,
        max_length: int,
        device: str | jax.Device | None = None,
        dtype: str | None = None,
        folder: Path | None = None,
    ):
        devices = np.asarray(local_devices(device))
        platform, self.devices, self.mesh = devices[0].platform, len(devices), Mesh(devices, ("data",))
        self.config, self.dtype = model.config, jnp.dtype(model.dtype).name
        self.reduces = platform != "cpu"
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
    def checked_dtype(dtype: str | None) -> tuple[str, str]:
        """The dtype of matrix products and of the loaded model, which are one."""
        return dtype or "float32", dtype or "float32"

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
        """Nothing: a model folder has all that JAX needs."""

    def _rows(vectors: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    """The vectors in the order of the rows, once they are there."""
    return {name: np.asarray(x).reshape(-1, x.shape[-1]) for name, x in vectors.items()}


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
) -> dict[str, jax.Array]:
    """Hidden states never leave their device, and those that no head reads are never made."""

    def on_device(state: Any, ids: jax.Array, lengths: jax.Array, heads: Any) -> dict[str, jax.Array]:
        ids, lengths = ids[:, 0], lengths[:, 0]
        segments = Segments.of(lengths, ids.shape[1]) if lengths.ndim == 2 else None
        tokens_of_row = lengths[:, None] if segments is None else jnp.sum(lengths, axis=1, keepdims=True)
        mask = (jnp.arange(ids.shape[1]) < tokens_of_row).astype(jnp.int32)
        output = nnx.merge(graph, state)(ids, mask, tokens=tokens, segments=segments, kernel=kernel)
        found = {name: run(steps, output, mask, ids, segments) for name, steps in heads.items()}
        return {name: x.reshape(len(ids), 1, *lengths.shape[1:], x.shape[-1]) for name, x in found.items()}

    everywhere = PartitionSpec()
    specs = (everywhere, _DEALT, _DEALT, everywhere)
    mapped = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=_DEALT, check_vma=kernel is None)
    return mapped(state, ids, lengths, heads)
