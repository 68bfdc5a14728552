"""Sentence-BERT in the training loop: rows tokenized once, batches, and the loss through the encoder.

Ragged token ids are cached under a key of text, tokenizer and length, and memory-mapped.

References:
  Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxwhiten import io
from jaxwhiten.encoding import length_ladder
from jaxwhiten.errors import InputError
from jaxwhiten.head import AfterPrompt, Mean, Step, as_pytrees, canonical, run
from jaxwhiten.losses import Loss
from jaxwhiten.text import PLAIN, BulkTokenizer, TextForm, Texts, TokenIds, as_texts, text_fingerprint
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.step import LossFn, Params
from jaxwhiten.types import Array, Float, Int, Shaped

as_pytrees()

Rebuild = Callable[[nnx.State[Any, Any]], Any]


@dataclasses.dataclass(frozen=True)
class TokenTable:
    """Rows of sentences as indices into the tokens of distinct sentences, so that repeated ones are stored once.

    >>> tokenizer = Encoder.from_pretrained("jaxwhiten-tiny").view.core.tokenizer
    >>> table = tokenize_columns([["A dog runs.", "It rains."]], tokenizer)
    >>> table.batch(np.array([1]), 8)["input_ids"].shape
    (1, 1, 8)
    """

    tokens: TokenIds
    sentences: Int[np.ndarray, "n columns"]
    key: str  # changes with the texts, the tokenizer, the prompts or the length
    max_length: int
    skipped: tuple[int, ...] = ()  # by column, tokens of the prompt, which some poolings leave out

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Tokens of the longest sentence of each row."""
        return np.asarray(self.tokens.lengths)[self.sentences].max(axis=1)

    def batch(self, rows: Int[np.ndarray, " b"], length: int) -> dict[str, np.ndarray]:
        """The given rows, padded: `input_ids` [b, columns, length] and `lengths` [b, columns], both int32."""
        chosen = self.sentences[rows]
        ids = self.tokens.padded(chosen.ravel(), chosen.size, length, 0)
        lengths = self.tokens.lengths[chosen].astype(np.int32)
        return {"input_ids": ids.reshape(*chosen.shape, length), "lengths": lengths}


def tokenize_columns(columns: Sequence[Texts], tokenizer: BulkTokenizer, forms: Sequence[TextForm] = ()) -> TokenTable:
    """Tokenizes columns of sentences, all of one length, or reads them back from the cache.

    Each column has its form, by default without a prompt. Sentences are truncated to the tokenizer's `max_length`.

    >>> tokenizer = Encoder.from_pretrained("jaxwhiten-tiny").view.core.tokenizer
    >>> tokenize_columns([["A dog runs."], ["A dog runs."]], tokenizer).sentences.tolist()
    [[0, 0]]
    """
    texts = [as_texts(column) for column in columns]
    if not texts or len({len(column) for column in texts}) != 1 or not texts[0]:
        raise InputError(f"Expected columns of one length, at least one row: got {[len(c) for c in texts]} rows.")
    forms = forms or [PLAIN] * len(texts)
    length = tokenizer.max_length
    written = [*map(text_fingerprint, texts), *map(dataclasses.astuple, forms)]
    key = io.content_key("tokens", 4, written, length, tokenizer.to_json())

    def read(folder: Path) -> list[np.ndarray]:
        return [io.map_array(folder / f"{name}.npy") for name in ("flat", "lengths", "sentences")]

    def write(folder: Path) -> None:
        numbers: dict[tuple[TextForm, str], int] = {}
        with_forms = list(zip(forms, texts, strict=True))
        rows = np.array(
            [[numbers.setdefault((form, text), len(numbers)) for text in column] for form, column in with_forms]
        )
        groups = [(form, [text for _, text in group]) for form, group in itertools.groupby(numbers, lambda key: key[0])]
        tokens = [tokenizer(texts, form) for form, texts in groups]
        for name in ("flat", "lengths"):
            io.save_array(folder / f"{name}.npy", np.concatenate([getattr(part, name) for part in tokens]))
        io.save_array(folder / "sentences.npy", rows.T.astype(np.int64))

    folder = io.cache_dir("tokens") / key
    if (arrays := io.recall(folder, read)) is None:
        io.keep(folder, write)
        arrays = read(folder)
    flat, lengths, sentences = arrays
    skipped = tuple(map(tokenizer.prompt_length, forms))
    return TokenTable(TokenIds(flat, lengths), sentences, key, length, skipped)


def split_encoder(model: nnx.Module, pooling: str = "pooler") -> tuple[nnx.State[Any, Any], Rebuild]:
    """Splits a model into the parameters to train and a function that rebuilds it from trained ones.

    BERT's pooler stays frozen unless it is the pooling to train for.

    >>> params, rebuild = split_encoder(load_bare("jaxwhiten-tiny").module)
    >>> type(rebuild(params)).__name__
    'TransformerEncoder'
    """
    selected = nnx.PathContains("pooler") if canonical(pooling) != "pooler" else nnx.Nothing()
    graph, frozen, params = nnx.split(model, selected, ...)  # type: ignore[misc]
    return params, lambda trained: nnx.merge(graph, frozen, trained)


def noisy_vectors(
    model: Any, ids: Int[Array, "b length"], lengths: Int[Array, " b"], steps: Sequence[Step], rngs: nnx.Rngs
) -> Float[Array, "b d"]:
    """Vectors of padded sentences after the steps of a head, with dropout.

    >>> from flax import nnx
    >>> encoder = load_bare("jaxwhiten-tiny")
    >>> ids, lengths = jnp.array([[2, 9, 3, 0]]), jnp.array([3])
    >>> noisy_vectors(encoder.module, ids, lengths, encoder.view.head.steps, nnx.Rngs(0)).shape
    (1, 256)
    """
    mask = (jnp.arange(ids.shape[1]) < lengths[:, None]).astype(jnp.int32)
    output = model(ids, mask, deterministic=False, rngs=rngs)
    return run(tuple(steps), output, mask, ids)


def sentence_loss(
    rebuild: Rebuild, loss: Loss, *, steps: Sequence[Step] = (Mean(),), passes: int = 1, skipped: Sequence[int] = ()
) -> LossFn:
    """Turns a loss on vectors into a loss on rows of sentences, through encoder and head, with dropout.

    Its parameters are `{"encoder": state, "head": arrays}`, and `"steps"`, which follow the given steps of the head. A
    batch has `input_ids` [b, columns, length], `lengths` [b, columns] and, if the loss needs them, `labels` [b]. All
    columns are encoded in one call, `passes` times with independent dropout (SimCSE: 2).

    >>> params, rebuild = split_encoder(load_bare("jaxwhiten-tiny").module)
    >>> loss = sentence_loss(rebuild, objective_loss("mnr"))
    >>> batch = {"input_ids": jnp.ones((2, 2, 4), int), "lengths": jnp.full((2, 2), 4)}
    >>> value, others = loss({"encoder": params}, batch, jax.random.key(0))
    >>> value.shape, others
    ((), {})
    """

    def loss_fn(params: Params, batch: dict[str, jax.Array], key: jax.Array) -> Any:
        ids, lengths = (jnp.concatenate([batch[name]] * passes, axis=1) for name in ("input_ids", "lengths"))
        rows, columns, length = ids.shape
        model = rebuild(params["encoder"])
        rngs = nnx.Rngs(dropout=key)
        skips = np.resize(np.array(skipped or 0, np.int32), rows * columns)
        placed = [AfterPrompt(step.pooling, skips) if isinstance(step, AfterPrompt) else step for step in steps]
        placed += params.get("steps", ())
        vectors = noisy_vectors(model, ids.reshape(-1, length), lengths.reshape(-1), placed, rngs)
        vectors = vectors.reshape(rows, columns, -1)
        return loss([vectors[:, column] for column in range(columns)], batch.get("labels"), params.get("head", {})), {}

    return loss_fn


def sentence_batches(
    table: TokenTable,
    labels: Shaped[np.ndarray, " n *m"] | None,
    vectors: Float[np.ndarray, "n columns d"] | None = None,
    *,
    batch_size: int,
    buckets: int = 4,
    seed: int = 0,
) -> Batches:
    """Batches of tokenized rows for `sentence_loss`, with labels and the `vectors` of their sentences, if given.

    Rows are padded to one of `buckets` lengths; each length needs its own compilation.

    >>> tokenizer = Encoder.from_pretrained("jaxwhiten-tiny").view.core.tokenizer
    >>> table = tokenize_columns([["A dog runs.", "It rains."]], tokenizer)
    >>> next(sentence_batches(table, labels=None, batch_size=2))["lengths"].shape
    (2, 1)
    """
    extra = {name: array for name, array in (("labels", labels), ("vectors", vectors)) if array is not None}

    def collate(rows: Int[np.ndarray, " b"], length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        del rng
        return table.batch(rows, length) | {name: array[rows] for name, array in extra.items()}

    ladder = length_ladder(table.max_length)
    return Batches(table.lengths, collate, batch_size=batch_size, ladder=ladder, buckets=buckets, seed=seed)
