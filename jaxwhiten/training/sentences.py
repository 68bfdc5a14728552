"""Sentence-BERT in the training loop: rows tokenised once, their batches, the loss through the encoder, the STS score.

Ragged token ids are cached under a key of text, tokenizer and length, and memory-mapped.

References:
  Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int, Shaped

from jaxwhiten import io
from jaxwhiten.encoding import Encoder, length_ladder
from jaxwhiten.errors import InputError
from jaxwhiten.head import canonical, pool
from jaxwhiten.losses import Loss
from jaxwhiten.metrics.scores import cosine_pairs, spearman
from jaxwhiten.runtime.distributed import gather_rows, share
from jaxwhiten.text import BulkTokenizer, TokenIds, checked_text
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.loop import Evaluate
from jaxwhiten.training.step import LossFn, Params

Rebuild = Callable[[nnx.State[Any, Any]], Any]
_LISTING = "arrays.json"


@dataclasses.dataclass(frozen=True)
class TokenTable:
    """Rows of tokenised sentences; a sentence that occurs in many rows is stored once.

    Attributes:
      tokens: Token ids of the distinct sentences.
      sentences: Index of the sentence in each row and column.
      key: Changes with the texts, the tokenizer or the length.
    """

    tokens: TokenIds
    sentences: Int[np.ndarray, "n columns"]
    key: str

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Tokens of the longest sentence of each row."""
        return np.asarray(self.tokens.lengths)[self.sentences].max(axis=1)

    def batch(self, rows: Int[np.ndarray, " b"], length: int, pad_id: int) -> dict[str, np.ndarray]:
        """The given rows, padded: `input_ids` [b, columns, length] and `lengths` [b, columns], both int32."""
        chosen = self.sentences[rows]
        ids = self.tokens.padded(chosen.ravel(), chosen.size, length, pad_id)
        lengths = self.tokens.lengths[chosen].astype(np.int32)
        return {"input_ids": ids.reshape(*chosen.shape, length), "lengths": lengths}


def tokenize_columns(
    columns: Sequence[Sequence[str]],
    tokenizer_folder: str | Path,
    max_length: int,
    cache: Path | None = None,
    *,
    special_tokens: bool = True,
) -> TokenTable:
    """Tokenises columns of sentences, or reads them back from the cache.

    Args:
      columns: One list of sentences per column, all of the same length.
      tokenizer_folder: Folder of the model's tokenizer.
      max_length: Maximum number of tokens per sentence, special tokens included; longer ones are truncated.
      cache: Folder for the ids; by default `tokens` in `jaxwhiten.io.cache_dir()`.
      special_tokens: Whether sentences are put between the model's special tokens.

    Raises:
      InputError: No columns, columns of different lengths, or an item that is not a string.
      ModelError: No readable tokenizer in the folder.
    """
    if not columns or len({len(column) for column in columns}) != 1 or not len(columns[0]):
        raise InputError(f"Expected columns of one length, at least one row: got {[len(c) for c in columns]} rows.")
    columns = [checked_text(column) for column in columns]
    tokenizer = BulkTokenizer(Path(tokenizer_folder), max_length, special_tokens=special_tokens)
    texts = hashlib.sha256()
    for column in columns:
        texts.update(json.dumps(column).encode())
    key = io.content_key("tokens", 1, texts.hexdigest(), max_length, tokenizer.to_json())

    entry = (cache or io.cache_dir("tokens")) / key
    try:
        arrays = _map_arrays(entry)
    except (OSError, ValueError, TypeError):
        numbers: dict[str, int] = {}
        sentences = np.array([[numbers.setdefault(text, len(numbers)) for text in column] for column in columns])
        tokens = tokenizer(list(numbers))
        built = {"flat": tokens.flat, "lengths": tokens.lengths, "sentences": sentences.T.astype(np.int64)}
        for name, array in built.items():
            io.save_array(entry / f"{name}.npy", array)
        io.write_json(entry / _LISTING, list(built))  # written last: without it the entry is incomplete
        arrays = _map_arrays(entry)
    return TokenTable(TokenIds(arrays["flat"], arrays["lengths"]), arrays["sentences"], key)


def _map_arrays(entry: Path) -> dict[str, np.ndarray]:
    names = json.loads((entry / _LISTING).read_text(encoding="utf-8"))
    return {name: io.map_array(entry / f"{name}.npy") for name in names}


def split_encoder(model: nnx.Module, pooling: str) -> tuple[nnx.State[Any, Any], Rebuild]:
    """Splits an encoder into the parameters to train and a function that rebuilds it from trained ones.

    Args:
      model: An encoder of `jaxwhiten.models`.
      pooling: The pooling to train for; BERT's pooler stays frozen unless it is used.
    """
    kept = nnx.PathContains("pooler") if canonical(pooling) != "pooler" else nnx.Nothing()
    graph, frozen, params = nnx.split(model, kept, ...)  # type: ignore[misc]
    return params, lambda trained: nnx.merge(graph, frozen, trained)


def noisy_vectors(
    model: Any, ids: Int[Array, "b length"], lengths: Int[Array, " b"], pooling: str, rngs: nnx.Rngs
) -> Float[Array, "b d"]:
    """Pooled vectors of padded sentences, with dropout."""
    mask = (jnp.arange(ids.shape[1]) < lengths[:, None]).astype(jnp.int32)
    output = model(ids, mask, deterministic=False, rngs=rngs)
    vectors: Array = pool(output, mask, (pooling,))[pooling]
    return vectors


def sentence_loss(rebuild: Rebuild, loss: Loss, *, pooling: str = "mean", passes: int = 1) -> LossFn:
    """The loss of a batch of sentence rows through encoder and pooling, with dropout.

    All columns are encoded in one call.

    Args:
      rebuild: From `split_encoder`.
      loss: From `jaxwhiten.losses.objective`.
      pooling: A name of `jaxwhiten.POOLINGS`.
      passes: How often each sentence is encoded, with independent dropout (SimCSE: 2).

    Returns:
      A loss for `make_step`. Parameters are `{"encoder": state, "head": arrays}`; a batch has `input_ids`
      [b, columns, length], `lengths` [b, columns] and, if the objective needs them, `labels` [b].
    """

    def loss_fn(params: Params, batch: dict[str, jax.Array], key: jax.Array) -> Any:
        ids, lengths = (jnp.concatenate([batch[name]] * passes, axis=1) for name in ("input_ids", "lengths"))
        rows, columns, length = ids.shape
        model, rngs = rebuild(params["encoder"]), nnx.Rngs(dropout=key)
        vectors = noisy_vectors(model, ids.reshape(-1, length), lengths.reshape(-1), pooling, rngs)
        vectors = vectors.reshape(rows, columns, -1)
        return loss([vectors[:, column] for column in range(columns)], batch.get("labels"), params.get("head", {})), {}

    return loss_fn


def sentence_batches(
    table: TokenTable,
    labels: Shaped[np.ndarray, " n *m"] | None,
    *,
    max_length: int,
    pad_id: int = 0,
    buckets: int = 4,
    vectors: Float[np.ndarray, "n columns d"] | None = None,
    **order: Any,
) -> Batches:
    """Batches of tokenised rows for `sentence_loss`.

    Args:
      table: From `tokenize_columns`.
      labels: One label per row, a number or an array, or None.
      max_length: Longest padded length.
      pad_id: Token id of padding.
      buckets: How many padded lengths to use, each with its own compilation; 1 pads everything to the longest.
      vectors: Vectors of the rows' sentences, which the loss finds as `vectors`; memory-mapped as well.
      **order: `batch_size`, `seed` and `process` of `Batches`.
    """
    given = {name: array for name, array in (("labels", labels), ("vectors", vectors)) if array is not None}

    def collate(rows: Int[np.ndarray, " b"], length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        del rng
        return table.batch(rows, length, pad_id) | {name: array[rows] for name, array in given.items()}

    return Batches(table.lengths, collate, ladder=length_ladder(max_length), buckets=buckets, **order)


def sts_evaluator(
    rebuild: Rebuild,
    tokenizer_folder: Path,
    name: str,
    sentence1: Sequence[str],
    sentence2: Sequence[str],
    gold: Float[np.ndarray, " n"],
    *,
    pooling: str = "mean",
    max_length: int = 128,
) -> Evaluate:
    """Spearman's correlation of cosines with gold scores, times 100, as an `evaluate` for the loop.

    Every process must call it: each encodes its share.

    Args:
      rebuild: From `split_encoder`.
      tokenizer_folder: Folder of the model's tokenizer.
      name: Name of the score.
      sentence1, sentence2, gold: The pairs and their gold scores.
      pooling: A name of `jaxwhiten.POOLINGS`.
      max_length: Maximum number of tokens per sentence.
    """

    def evaluate(params: Params) -> dict[str, float]:
        host = jax.device_get(params["encoder"])  # the next step donates the buffers on the devices
        encoder = Encoder(rebuild(host), tokenizer_folder, pooling=pooling, max_length=max_length)
        if steps := jax.device_get(params.get("steps", ())):
            encoder = encoder.then(*steps)
        vectors = gather_rows(encoder.encode(share([*sentence1, *sentence2]), show_progress=False))
        half = len(sentence1)
        return {name: 100 * spearman(cosine_pairs(vectors[:half], vectors[half:]), gold)}

    return evaluate
