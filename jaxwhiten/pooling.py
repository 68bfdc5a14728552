"""From hidden states to one vector a sentence: one pure function a pooling, one registry.

The mask counts [CLS] and [SEP] as tokens, padding never. All poolings return float32.

References:
  Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval" (first_last_avg).
  Reimers & Gurevych 2019, "Sentence-BERT", section 3 (cls, mean, max).
  Gao et al. 2021, "SimCSE": what that paper calls first-last is `embeddings_last_avg` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxwhiten.errors import ModelError, unknown_name
from jaxwhiten.models.layers import EncoderOutput

Pooled = Float[Array, "batch d"]
Mask = Int[Array, "batch length"]
Pooling = Callable[[EncoderOutput, Mask], Pooled]


def masked_mean(x: Float[Array, "batch length d"], mask: Mask) -> Pooled:
    """Mean over the tokens whose mask is 1; a row without tokens gives zeros."""
    weights = mask.astype(jnp.float32)[:, :, None]
    total = jnp.sum(x.astype(jnp.float32) * weights, axis=1)
    return total / jnp.maximum(jnp.sum(weights, axis=1), 1.0)


def cls(output: EncoderOutput, mask: Mask) -> Pooled:
    """Last layer, first token."""
    del mask
    return output.hidden_states[-1][:, 0].astype(jnp.float32)


def mean(output: EncoderOutput, mask: Mask) -> Pooled:
    """Masked mean of the last layer."""
    return masked_mean(output.hidden_states[-1], mask)


def max_over_time(output: EncoderOutput, mask: Mask) -> Pooled:
    """Masked maximum of the last layer."""
    x = output.hidden_states[-1].astype(jnp.float32)
    return jnp.max(jnp.where(mask[:, :, None] > 0, x, jnp.finfo(jnp.float32).min), axis=1)


def _mean_of_layers(first: int, second: int) -> Pooling:
    """Masked mean of two layers' average. The release sums them; halving changes no cosine and no whitening."""

    def pool(output: EncoderOutput, mask: Mask) -> Pooled:
        return masked_mean((output.hidden_states[first] + output.hidden_states[second]) / 2, mask)

    return pool


first_last_avg = _mean_of_layers(1, -1)
embeddings_last_avg = _mean_of_layers(0, -1)
last2avg = _mean_of_layers(-1, -2)


def pooler(output: EncoderOutput, mask: Mask) -> Pooled:
    """BERT's pooler output: a dense layer and tanh on the first token."""
    del mask
    if output.pooler is None:
        raise ModelError("This model has no pooler; take another pooling, such as 'cls' or 'mean'.")
    return output.pooler.astype(jnp.float32)


POOLINGS: dict[str, Pooling] = {
    "cls": cls,
    "mean": mean,
    "max": max_over_time,
    "first_last_avg": first_last_avg,
    "embeddings_last_avg": embeddings_last_avg,
    "last2avg": last2avg,
    "pooler": pooler,
}
ALIASES = {"last_avg": "mean"}


def canonical(name: str) -> str:
    """The pooling's own name for a name or alias.

    Raises:
      InputError: No such pooling; the message gives the nearest names.
    """
    name = ALIASES.get(name, name)
    if name not in POOLINGS:
        raise unknown_name("pooling", name, POOLINGS)
    return name


def pool(output: EncoderOutput, mask: Mask, names: Sequence[str] = ("first_last_avg",)) -> dict[str, Pooled]:
    """Applies poolings by name.

    Args:
      output: What the encoder returned.
      mask: 1 for tokens, 0 for padding.
      names: Names from `POOLINGS` or aliases.

    Returns:
      One float32 array a name asked for.
    """
    return {name: POOLINGS[canonical(name)](output, mask) for name in names}
