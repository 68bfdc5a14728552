"""Encoder and poolings as one compiled program on all local devices: padded token ids in, vectors out.

Knows what each pooling needs beside the hidden states, and refuses those that this model cannot serve.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int

from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head.folder import SentenceHead
from jaxwhiten.head.pooling import AUTO, Tokens, canonical, pool, resolve
from jaxwhiten.models import TransformerEncoder
from jaxwhiten.runtime.hardware import cores
from jaxwhiten.text.tokenization import TextForm

# A CPU's operations leave its cores idle in turn; batches side by side fill the gaps. More threads gain little.
_CPU_BATCHES = 4
_DEALT = PartitionSpec(None, "data")  # of arrays [row of its device, device, ...]


class Program:
    """A model on the devices, with what its poolings need.

    Args:
      model: An encoder.
      head: What the pooling `"auto"` stands for, or None.
      mask_token: Id of the tokenizer's mask token, or None.

    Attributes:
      config: The model's.
      dtype: What matrix products run in.
      platform: Of the devices.
      devices: How many there are; the rows of a batch are dealt out to them in turn.
      in_flight: Batches to have started before the oldest is waited for.
    """

    def __init__(self, model: TransformerEncoder, head: SentenceHead | None, mask_token: int | None):
        devices = np.asarray(jax.local_devices())
        mesh = Mesh(devices, ("data",))
        self.config = model.config
        self.dtype = jnp.dtype(model.dtype).name
        self.platform, self.devices = devices[0].platform, len(devices)
        self._dealt, self._everywhere = NamedSharding(mesh, _DEALT), NamedSharding(mesh, PartitionSpec())
        side_by_side = min(cores(), _CPU_BATCHES) if self.platform == "cpu" and self.devices == 1 else 1
        self._threads = ThreadPoolExecutor(side_by_side, "batch") if side_by_side > 1 else None
        self._compiled: dict[tuple[Any, ...], threading.Event] = {}
        self._lock = threading.Lock()
        self.in_flight = side_by_side + 2
        graph, state = nnx.split(model)
        if self.dtype == "bfloat16":
            state = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), state)
        self._model = graph, jax.device_put(state, self._everywhere)
        self._head: tuple[nnx.GraphDef[Any], nnx.State[Any, Any]] | None = None
        self._head_form, self._head_width, self._head_summary = TextForm(), self.config.hidden_size, ""
        if head is not None:
            self._head_form, self._head_width, self._head_summary = head.form, head.width, head.summary
            head_graph, head_state = nnx.split(head)
            self._head = head_graph, jax.device_put(head_state, self._everywhere)
        self._mask_token = mask_token
        self._idf: dict[str, jax.Array] = {}

    @staticmethod
    def is_out_of_memory(error: Exception) -> bool:
        """Whether the devices had no room for a batch."""
        return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

    def contents(self) -> Iterator[bytes]:
        """Configuration, weights and head as bytes, to be hashed."""
        yield repr(self.config).encode()
        states = [self._model[1]]
        if self._head is not None:
            yield self._head_summary.encode()
            states.append(self._head[1])
        for state in states:
            for path, leaf in sorted(nnx.to_flat_state(state), key=lambda item: str(item[0])):
                yield repr(path).encode()
                yield np.asarray(leaf.get_value(), dtype=np.float32).tobytes()

    def width(self, pooling: str) -> int:
        """Width of a pooling's vectors."""
        return self._head_width if canonical(pooling) == AUTO else self.config.hidden_size

    def check(self, name: str) -> None:
        """Whether the model can be pooled so.

        Raises:
          InputError: No such pooling, layer or head, or a table of weights that is not there.
          ModelError: The model has no pooler, or its tokenizer no mask token.
        """
        if canonical(name) == AUTO:
            if self._head is None:
                raise InputError("Pooling 'auto' has no answer here: name a pooling, or load the folder with 'auto'.")
            return
        pooling = resolve(name)
        pooling.check(self.config)
        if pooling.idf is not None and pooling.idf not in self._idf:
            raise InputError(f"Pooling {name!r} needs its table of weights: call fit_idf with the same sentences.")
        if pooling.form.has_mask and self._mask_token is None:
            raise ModelError(f"Pooling {name!r} needs a mask token, and the model's tokenizer has none.")

    def by_form(self, names: tuple[str, ...]) -> dict[TextForm, tuple[str, ...]]:
        """Poolings by how they want sentences written; those that agree share a forward pass."""
        groups: dict[TextForm, tuple[str, ...]] = {}
        for name in names:
            form = self._head_form if name == AUTO else resolve(name).form
            groups[form] = (*groups.get(form, ()), name)
        return groups

    def add_idf(self, weights: Float[np.ndarray, " vocab"]) -> str:
        """Takes a weight for every token id, and gives the name of the pooling that uses them.

        Raises:
          InputError: Weights of another length, below 0, or not finite.
        """
        weights = np.ascontiguousarray(weights, np.float32)
        if weights.shape != (self.config.vocab_size,) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise InputError(f"Expected {self.config.vocab_size} finite weights, none below 0; got {weights.shape}.")
        table = hashlib.sha256(weights.tobytes()).hexdigest()[:8]
        self._idf[table] = jax.device_put(weights, self._everywhere)
        return f"idf:{table}"

    def start(
        self,
        ids: Int[np.ndarray, "batch length"],
        lengths: Int[np.ndarray, " batch"],
        tokens: int,
        names: tuple[str, ...],
    ) -> Callable[[], dict[str, np.ndarray]]:
        """Starts one batch; what is returned waits for it, and raises what it raised.

        On a CPU several batches run side by side. The first of a shape is compiled while the others wait.

        Args:
          ids: Padded token ids; rows are a multiple of the devices.
          lengths: Tokens of each row, at least 1.
          tokens: Room for tokens on all devices together (`batching`); rows at the end may find none.
          names: Poolings that `check` has passed.

        Returns:
          A function that gives float32 [batch, d] by name.
        """
        if self._threads is None:
            pooled = self._forward(ids, lengths, tokens, names)
            return lambda: _rows(pooled)
        shape = (*ids.shape, tokens, *names)
        with self._lock:  # the first of a shape is ahead in the threads' queue, so that to wait for it ends
            compiled = self._compiled.get(shape)
            first = compiled is None
            compiled = self._compiled.setdefault(shape, threading.Event())
            return self._threads.submit(self._run, ids, lengths, tokens, names, compiled, first).result

    def _run(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        tokens: int,
        names: tuple[str, ...],
        compiled: threading.Event,
        first: bool,
    ) -> dict[str, np.ndarray]:
        if not first:
            compiled.wait()
        try:
            return _rows(self._forward(ids, lengths, tokens, names))
        finally:
            compiled.set()

    def _forward(
        self, ids: np.ndarray, lengths: np.ndarray, tokens: int, names: tuple[str, ...]
    ) -> dict[str, jax.Array]:
        """Starts one batch on the devices; the result, [row of its device, device, d], is not waited for."""
        plain = tuple(name for name in names if name != AUTO)
        tables = {table: self._idf[table] for table in (resolve(name).idf for name in plain) if table is not None}
        head, head_state = self._head if self._head is not None and AUTO in names else (None, None)
        dealt = jax.device_put(
            (ids.reshape(-1, self.devices, ids.shape[1]), lengths.reshape(-1, self.devices)), self._dealt
        )
        each = tokens // self.devices if tokens < ids.size else None
        graph, state = self._model
        return _forward(graph, state, *dealt, plain, self._mask_token, tables, head, head_state, each, self._dealt.mesh)


def _rows(pooled: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    """The vectors in the order of the rows, once they are there."""
    return {name: np.asarray(vectors).reshape(-1, vectors.shape[-1]) for name, vectors in pooled.items()}


@functools.partial(jax.jit, static_argnames=("graph", "names", "mask_token", "head", "tokens", "mesh"))
def _forward(
    graph: nnx.GraphDef[Any],
    state: nnx.State[Any, Any],
    ids: jax.Array,
    lengths: jax.Array,
    names: tuple[str, ...],
    mask_token: int | None,
    idf: dict[str, jax.Array],
    head: nnx.GraphDef[Any] | None,
    head_state: nnx.State[Any, Any] | None,
    tokens: int | None,
    mesh: Mesh,
) -> dict[str, jax.Array]:
    """Hidden states never leave their device, and those that no pooling reads are never made."""

    def on_device(
        state: Any, ids: jax.Array, lengths: jax.Array, idf: dict[str, jax.Array], head_state: Any
    ) -> dict[str, jax.Array]:
        ids, lengths = ids[:, 0], lengths[:, 0]
        mask = (jnp.arange(ids.shape[1]) < lengths[:, None]).astype(jnp.int32)
        output = nnx.merge(graph, state)(ids, mask, tokens=tokens)
        pooled = pool(output, mask, names, ids=ids, mask_token=mask_token, idf=idf)
        if head is not None:
            pooled[AUTO] = nnx.merge(head, head_state)(output, Tokens(mask, ids))
        return {name: vectors[:, None] for name, vectors in pooled.items()}

    everywhere = PartitionSpec()
    specs = (everywhere, _DEALT, _DEALT, everywhere, everywhere)
    return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=_DEALT)(state, ids, lengths, idf, head_state)
