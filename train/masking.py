"""Masked language modeling in the training loop: whole-word masking in numpy, the loss, the held-out score.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", section 3.1
  and appendix A.1 (80 % masked, 10 % random, 10 % unchanged); whole-word masking is from the authors' later release.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Int

from configs.processes import gather_rows
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.io import PathLike
from jaxwhiten.models import EncoderConfig, init_model
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.training import Batch, Batches, Evaluate, LossFn, Params, Rebuild, place_batch
from train.corpus import TokenStream
from train.masked import MaskedLM

# Prefix of tokens that begin a word; WordPiece instead marks the tokens that continue one.
_WORD_START = {"BPE": "Ġ", "Unigram": "▁"}


@dataclasses.dataclass(frozen=True)
class MaskRules:
    """Which token ids may be masked, and their replacements.

    A `share` of the maskable tokens is chosen, as whole words. The share `masked` of the chosen tokens becomes the mask
    token, the share `random` becomes random tokens, and the rest stay unchanged.
    """

    mask_id: int
    maskable: Bool[np.ndarray, " vocab"]  # False for special tokens
    continues: Bool[np.ndarray, " vocab"]  # whether a token continues the previous word
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or min(self.masked, self.random) < 0 or self.masked + self.random > 1:
            raise InputError(
                f"Shares to mask: {self.share}, of which {self.masked} masked and {self.random} random; expected "
                "0 < share < 1 and masked + random at most 1."
            )

    def places(self, length: int) -> int:
        """The number of positions reserved for chosen tokens in a row of the given length."""
        return max(round(self.share * length), 1)


def mask_rules(tokenizer_folder: PathLike, share: float = 0.15, masked: float = 0.8, random: float = 0.1) -> MaskRules:
    """The masking rules for a tokenizer; ModelError if it has no mask token or does not mark the starts of words."""
    tokenizer = BulkTokenizer(Path(tokenizer_folder), 1 << 20)
    if tokenizer.mask_token_id is None:
        raise ModelError(f"{tokenizer_folder}: its tokenizer has no mask token; masked training needs one.")
    model = json.loads(tokenizer.to_json())["model"]
    names = tokenizer.vocabulary
    kind = model["type"]
    maskable = np.array([name != "" for name in names])
    maskable[list(tokenizer.special_ids)] = False
    if kind == "WordPiece":
        continues = [name.startswith(model["continuing_subword_prefix"]) for name in names]
    elif kind in _WORD_START:
        continues = [not name.startswith(_WORD_START[kind]) for name in names]
    else:
        raise ModelError(f"{tokenizer_folder}: a {kind} tokenizer does not mark where words begin.")
    return MaskRules(tokenizer.mask_token_id, maskable, np.array(continues) & maskable, share, masked, random)


def mask_blocks(ids: Int[np.ndarray, "b length"], rules: MaskRules, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Chooses whole words at random and masks their tokens.

    Words are taken in random order until the next one would exceed the row's share. Returns `input_ids` [b, length]
    with the chosen tokens replaced, and `positions`, `targets` (int32) and `weights` (float32, 1 for chosen tokens),
    each [b, places] with `places = rules.places(length)`.
    """
    b, length = ids.shape
    places = rules.places(length)
    column = np.arange(length)
    maskable = rules.maskable[ids]
    begins = maskable & ~rules.continues[ids]
    begins[:, 1:] |= maskable[:, 1:] & ~maskable[:, :-1]
    begins[:, 0] |= maskable[:, 0]
    word = np.maximum.accumulate(np.where(begins, column, 0), axis=1)
    draw = np.take_along_axis(rng.random((b, length)), word, axis=1)  # the same for all tokens of a word
    draw[~maskable] = 2.0
    order = np.argsort(draw, axis=1, kind="stable")
    draw = np.take_along_axis(draw, order, axis=1)
    is_end = np.ones((b, length), bool)
    is_end[:, :-1] = draw[:, 1:] != draw[:, :-1]
    word_end = np.minimum.accumulate(np.where(is_end, column, length)[:, ::-1], axis=1)[:, ::-1]
    budget = np.clip(np.round(rules.share * maskable.sum(1)), 1, places)[:, None]
    chosen = ((word_end < budget) & (draw < 2.0))[:, :places]

    positions = order[:, :places]
    targets = np.take_along_axis(ids, positions, axis=1)
    action = rng.random((b, places))
    replacements = np.flatnonzero(rules.maskable)
    random = replacements[rng.integers(len(replacements), size=(b, places))]
    hidden = np.where(action < rules.masked, rules.mask_id, targets)
    hidden = np.where((action >= rules.masked) & (action < rules.masked + rules.random), random, hidden)
    hidden = np.where(chosen, hidden, targets)
    inputs = ids.copy()
    np.put_along_axis(inputs, positions, hidden, axis=1)
    integers = {"input_ids": inputs, "positions": positions, "targets": targets}
    return {name: array.astype(np.int32) for name, array in integers.items()} | {"weights": chosen.astype(np.float32)}


def masked_batches(stream: TokenStream, rules: MaskRules, *, batch_size: int, seed: int = 0) -> Batches:
    """Shuffled batches of blocks for `masked_loss`; a block is masked differently in every epoch."""

    def collate(rows: Int[np.ndarray, " b"], length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        del length
        return mask_blocks(stream.blocks(rows), rules, rng)

    lengths = np.full(len(stream), stream.length)
    ladder = np.array([stream.length])
    return Batches(lengths, collate, batch_size=batch_size, ladder=ladder, buckets=1, seed=seed)


def _sums(model: MaskedLM, batch: Batch, rngs: nnx.Rngs | None = None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Summed loss, number of correct predictions, and number of masked positions; with dropout if `rngs` is given."""
    everywhere = jnp.ones(batch["input_ids"].shape, jnp.int32)  # blocks have no padding
    scores = model(batch["input_ids"], everywhere, batch["positions"], deterministic=rngs is None, rngs=rngs)
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, batch["targets"])
    correct = (jnp.argmax(scores, axis=-1) == batch["targets"]).astype(jnp.float32)
    weights = batch["weights"]
    return jnp.sum(losses * weights), jnp.sum(correct * weights), jnp.sum(weights)


def masked_loss(rebuild: Rebuild) -> LossFn:
    """The mean cross-entropy over the masked positions of batches of `masked_batches`, with the model's dropout."""

    def loss_fn(params: Params, batch: Batch, key: jax.Array) -> Any:
        loss, correct, count = _sums(rebuild(params), batch, nnx.Rngs(dropout=key))
        count = jnp.maximum(count, 1.0)
        return loss / count, {"accuracy": 100 * correct / count}

    return loss_fn


def masked_evaluator(
    rebuild: Rebuild, stream: TokenStream, rules: MaskRules, *, blocks: int = 0, batch_size: int = 64
) -> Evaluate:
    """Mean loss in nats and accuracy in percent on blocks with fixed masks, as an `evaluate` for the loop.

    Uses `blocks` evenly spaced blocks of the held-out `stream`; 0 uses all.
    """
    count = min(blocks or len(stream), len(stream))
    rows = np.linspace(0, len(stream) - 1, count).astype(np.int64)
    mesh = Mesh(np.asarray(jax.local_devices()), ("data",))
    height = -(-min(batch_size, count) // mesh.size) * mesh.size
    sums = jax.jit(lambda params, batch: _sums(rebuild(params), batch))

    def evaluate(params: Params) -> dict[str, float]:
        total = np.zeros(3)
        for start in range(0, count, height)[jax.process_index() :: jax.process_count()]:
            chosen = np.resize(rows[start : start + height], height)
            batch = mask_blocks(stream.blocks(chosen), rules, np.random.default_rng(start))
            batch["weights"][count - start :] = 0.0  # padding of the last batch
            total += np.array(jax.device_get(sums(params, place_batch(batch, mesh))), np.float64)
        total = gather_rows(total[None]).sum(axis=0)
        return {"held-out loss": total[0] / total[2], "held-out accuracy": 100 * total[1] / total[2]}

    return evaluate


def with_rates(model: MaskedLM, dropout: float | None) -> MaskedLM:
    """Sets every dropout rate of the model, unless None. Its `config`, which is saved, stays unchanged."""
    if dropout is not None:
        for _, part in nnx.iter_modules(model):
            if isinstance(part, nnx.Dropout):
                part.rate = dropout
    return model


def init_masked_lm(config: EncoderConfig, *, seed: int, dtype: str = "float32", remat: bool = False) -> MaskedLM:
    """A masked language model with random weights, for training from scratch. Args as for `init_model`."""
    rngs = nnx.Rngs(seed)
    encoder = init_model(dataclasses.replace(config, pooler=False), seed=rngs, dtype=dtype, remat=remat)
    return MaskedLM(encoder, rngs=rngs)
