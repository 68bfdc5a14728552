"""Text to vectors: tokenise, batch by length, run encoder and pooling as one compiled function, in any amount.

    encoder = Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2", pooling="mean")
    vectors = encoder.encode(["A man plays a guitar.", "Someone makes music."])  # float32 [2, 384]

While the device works on one block of sentences, the host tokenises the next. Batches are split over all local
devices. A vector depends on its own sentence only: not on its neighbours, the batch size or the order.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from jaxwhiten import io
from jaxwhiten.batching import Batch, plan_batches
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.models import loading
from jaxwhiten.pooling import canonical, pool
from jaxwhiten.tokenization import BulkTokenizer, TokenIds, checked_text

DEFAULT_POOLING = "first_last_avg"

# Padded tokens a batch holds on each device. On a CPU small batches stay in the cache; accelerators want large ones.
_TOKENS_PER_DEVICE = {"cpu": 2048, "gpu": 65_536, "tpu": 65_536}
_BLOCK = 16_384  # sentences tokenised and sorted together
_IN_FLIGHT = 3  # batches handed to the device before the oldest is read back

Vectors = np.ndarray
Names = str | Sequence[str] | None


class Encoder:
    """A BERT-family encoder with its tokenizer and a pooling.

    Usually made by `from_pretrained`; the constructor takes the parts, for models made in memory.

    Args:
      model: A Flax NNX encoder (`jaxwhiten.models`).
      tokenizer_folder: Where its tokenizer lies.
      pooling: Default pooling, a name of `jaxwhiten.POOLINGS`.
      max_length: Longest sentence in tokens, special tokens counted; longer ones are cut.
      name: What the model is called in results and provenance.

    Attributes:
      name: As given.
      pooling: Default pooling.
      max_length: As given.
      dtype: What matrix products run in, `"float32"` or `"bfloat16"`.
      dimension: Width d of the vectors.
    """

    def __init__(
        self,
        model: nnx.Module,
        tokenizer_folder: str | Path,
        *,
        pooling: str = DEFAULT_POOLING,
        max_length: int = 64,
        name: str = "",
    ):
        self.config = model.config
        self.name = name or str(tokenizer_folder)
        self.pooling = canonical(pooling)
        self.max_length = self._checked_length(max_length)
        self.dtype = jnp.dtype(model.dtype).name
        self.dimension = self.config.hidden_size
        self._tokenizer = BulkTokenizer(Path(tokenizer_folder), max_length)
        if self._tokenizer.vocab_size > self.config.vocab_size:
            raise ModelError(
                f"{tokenizer_folder}: the tokenizer has {self._tokenizer.vocab_size} entries, the model's embedding "
                f"{self.config.vocab_size} rows; they do not belong together."
            )
        devices = np.asarray(jax.local_devices())
        mesh = Mesh(devices, ("data",))
        self._by_row = NamedSharding(mesh, PartitionSpec("data"))
        self._devices = len(devices)
        self._token_budget = _TOKENS_PER_DEVICE.get(devices[0].platform, 2048) * self._devices
        self._graph, state = nnx.split(model)
        if self.dtype == "bfloat16":
            state = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), state)
        self._state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
        _use_compilation_cache()

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        pooling: str = DEFAULT_POOLING,
        max_length: int = 64,
        dtype: str = "float32",
        revision: str | None = None,
    ) -> Encoder:
        """Reads an encoder from a local folder or the hub.

        Args:
          model: Folder or hub id; plain Hugging Face and sentence-transformers layouts.
          pooling: A name of `jaxwhiten.POOLINGS`, or `"auto"` for what a sentence-transformers folder says.
          max_length: Longest sentence in tokens.
          dtype: `"float32"` or `"bfloat16"`.
          revision: Commit, tag or branch on the hub.

        Returns:
          The encoder, its weights on all local devices.

        Raises:
          ModelError: The folder cannot be read; the message names the file or tensor and says what to do.
          InputError: An unknown pooling or dtype, or a `max_length` the model cannot take.
        """
        folder = loading.resolve_folder(model, revision=revision)
        pooling = loading.declared_pooling(folder) if pooling == "auto" else canonical(pooling)
        module, _, weights_folder = loading.load_model(folder, dtype=dtype)
        tokenizer_folder = weights_folder if loading.has_tokenizer(weights_folder) else folder
        return cls(module, tokenizer_folder, pooling=pooling, max_length=max_length, name=str(model))

    def _checked_length(self, max_length: int) -> int:
        if not 3 <= max_length <= self.config.longest_input:
            raise InputError(f"max_length is {max_length}; this model takes 3 to {self.config.longest_input} tokens.")
        return max_length

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of weights, configuration and tokenizer; equal for equal encoders wherever they came from."""
        digest = hashlib.sha256(repr(self.config).encode())
        digest.update(self._tokenizer.to_json().encode())
        for path, leaf in sorted(nnx.to_flat_state(self._state), key=lambda item: str(item[0])):
            digest.update(repr(path).encode())
            digest.update(np.asarray(leaf.get_value(), dtype=np.float32).tobytes())
        return digest.hexdigest()[:24]

    @overload
    def encode(
        self,
        sentences: Sequence[str],
        *,
        pooling: str | None = None,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Vectors: ...
    @overload
    def encode(
        self,
        sentences: Sequence[str],
        *,
        pooling: Sequence[str],
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> dict[str, Vectors]: ...
    def encode(self, sentences, *, pooling=None, batch_size=None, show_progress=None):
        """Encodes sentences.

        Args:
          sentences: Any number of strings; an empty string is encoded as [CLS] [SEP].
          pooling: A name, or several (one forward pass serves all); default `self.pooling`.
          batch_size: At most this many sentences a batch; by default a token budget decides.
          show_progress: True or False; None shows a bar on a terminal when it takes over a second.

        Returns:
          float32 [n, d] in the order of the sentences; for several poolings a dict of such arrays by name.

        Raises:
          InputError: An item is not a string; its index is named, and nothing was encoded.
        """
        sentences = checked_text(sentences)
        names, single = self._pooling_names(pooling)
        out = {name: np.empty((len(sentences), self.dimension), np.float32) for name in names}
        with _progress(len(sentences), show_progress) as bar:
            start = 0
            for block in self._blocks(_split(sentences, _BLOCK), names, batch_size, bar):
                size = len(block[names[0]])
                for name in names:
                    out[name][start : start + size] = block[name]
                start += size
        return out[names[0]] if single else out

    def encode_stream(
        self,
        sentences: Iterable[str],
        *,
        pooling: Names = None,
        block_size: int = _BLOCK,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[Vectors] | Iterator[dict[str, Vectors]]:
        """Encodes any iterable of sentences in bounded memory.

        Args:
          sentences: Read lazily, at most two blocks ahead.
          pooling: As in `encode`.
          block_size: Sentences a block; they are sorted by length within it.
          batch_size: As in `encode`.
          show_progress: As in `encode`.

        Yields:
          For each block, in input order, what `encode` would return for it.

        Raises:
          InputError: An item is not a string; its index is named. All blocks before its own were yielded.
        """
        names, single = self._pooling_names(pooling)
        if block_size < 1:
            raise InputError(f"block_size is {block_size}; it must be at least 1.")
        total = len(sentences) if isinstance(sentences, Sequence) else None
        with _progress(total, show_progress) as bar:
            for block in self._blocks(_checked_blocks(sentences, block_size), names, batch_size, bar):
                yield block[names[0]] if single else block

    def _pooling_names(self, pooling: Names) -> tuple[tuple[str, ...], bool]:
        """The names to compute, under which the caller asked for them, and whether one array is wanted."""
        if pooling is None or isinstance(pooling, str):
            names, single = (pooling or self.pooling,), True
        else:
            names, single = tuple(dict.fromkeys(pooling)), False
        if not names:
            raise InputError("pooling is an empty list; name at least one.")
        if any(canonical(name) == "pooler" for name in names) and not self.config.pooler:
            raise ModelError(f"{self.name}: has no pooler; take another pooling, such as 'cls' or 'mean'.")
        return names, single

    def _blocks(
        self, blocks: Iterable[list[str]], names: tuple[str, ...], batch_size: int | None, bar: tqdm
    ) -> Iterator[dict[str, Vectors]]:
        """Encodes blocks of sentences, tokenising the next one while the device works on this one."""
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1.")
        blocks = iter(blocks)
        with ThreadPoolExecutor(1, thread_name_prefix="tokenize") as pool_:

            def tokenize_next():
                block = next(blocks, None)
                return None if block is None else self._tokenizer(block)

            upcoming = pool_.submit(tokenize_next)
            while (tokens := upcoming.result()) is not None:
                upcoming = pool_.submit(tokenize_next)
                yield self._encode_block(tokens, names, batch_size, bar)

    def _encode_block(
        self, tokens: TokenIds, names: tuple[str, ...], batch_size: int | None, bar: tqdm
    ) -> dict[str, Vectors]:
        out = {name: np.empty((len(tokens.lengths), self.dimension), np.float32) for name in names}
        pending: collections.deque[tuple[Batch, dict[str, jax.Array]]] = collections.deque()

        def read_oldest() -> None:
            batch, pooled = pending.popleft()
            for name in names:
                out[name][batch.rows] = np.asarray(pooled[name])[: len(batch.rows)]
            bar.update(len(batch.rows))

        for batch in plan_batches(
            tokens.lengths,
            max_length=self.max_length,
            token_budget=self._token_budget,
            multiple=self._devices,
            max_rows=batch_size,
        ):
            pending.append((batch, self._run(tokens, batch, names)))
            if len(pending) >= _IN_FLIGHT:
                read_oldest()
        while pending:
            read_oldest()
        return out

    def _run(self, tokens: TokenIds, batch: Batch, names: tuple[str, ...]) -> dict[str, jax.Array]:
        """Starts one batch on the devices; the result is not waited for."""
        ids = tokens.padded(batch.rows, batch.height, batch.length, self.config.pad_token_id)
        lengths = np.ones(batch.height, np.int32)  # a padding row attends to its first position: no NaN
        lengths[: len(batch.rows)] = tokens.lengths[batch.rows]
        ids, lengths = jax.device_put((ids, lengths), self._by_row)
        return _forward(self._graph, self._state, ids, lengths, names)


@functools.partial(jax.jit, static_argnames=("graph", "names"))
def _forward(graph: nnx.GraphDef, state: nnx.State, ids: jax.Array, lengths: jax.Array, names: tuple[str, ...]):
    """Encoder and poolings as one program; hidden states never leave the device."""
    mask = (jnp.arange(ids.shape[1]) < lengths[:, None]).astype(jnp.int32)
    return pool(nnx.merge(graph, state)(ids, mask), mask, names)


def _split(sentences: list[str], size: int) -> Iterator[list[str]]:
    return (sentences[start : start + size] for start in range(0, len(sentences), size))


def _checked_blocks(sentences: Iterable[object], size: int) -> Iterator[list[str]]:
    if isinstance(sentences, str):
        checked_text(sentences)
    for number, block in enumerate(iter(functools.partial(_take, iter(sentences), size), [])):
        yield checked_text(block, number * size)


def _take(iterator: Iterator[object], size: int) -> list[object]:
    return list(itertools.islice(iterator, size))


def _progress(total: int | None, show: bool | None) -> tqdm:
    disable = None if show is None else not show
    return tqdm(total=total, desc="encode", unit="sent", disable=disable, delay=1 if show is None else 0, leave=False)


def _use_compilation_cache() -> None:
    """Keeps compiled programs between runs, unless the user has chosen a place or switched it off."""
    if jax.config.jax_compilation_cache_dir is None and os.environ.get("JAXWHITEN_COMPILATION_CACHE") != "0":
        jax.config.update("jax_compilation_cache_dir", str(io.cache_dir("xla")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
