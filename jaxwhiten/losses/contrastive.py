"""Contrastive losses: other sentences of the batch are the negatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.errors import InputError


def cosine(u: Float[Array, "*b d"], v: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Row-wise cosine similarity; 0, with a finite gradient, if either row is zero."""
    return jnp.sum(normalize_on_device(u) * normalize_on_device(v), axis=-1)


def multiple_negatives_ranking(
    anchor: Float[Array, "b d"], positive: Float[Array, "b d"], *negatives: Float[Array, "b d"], scale: float = 20.0
) -> Scalar:
    """Cross-entropy of identifying each anchor's positive among all positives and hard negatives of the batch.

    Every row of `negatives` is a candidate for every anchor. `scale` is an inverse temperature.

    References:
      Henderson et al., Efficient Natural Language Response Suggestion for Smart Reply (2017), section 4.4; with
      scaled cosines as in sentence-transformers' `MultipleNegativesRankingLoss`.
    """
    candidates = jnp.concatenate([positive, *negatives])
    scores = scale * jnp.matmul(normalize_on_device(anchor), normalize_on_device(candidates).T, precision="highest")
    log_probability = jax.nn.log_softmax(scores, axis=-1)
    return -jnp.mean(jnp.diagonal(log_probability))


def simcse(first: Float[Array, "b d"], second: Float[Array, "b d"], *, temperature: float = 0.05) -> Scalar:
    """Unsupervised SimCSE: two encodings of a sentence with independent dropout are a positive pair.

    References:
      Gao, Yao and Chen, SimCSE (EMNLP 2021), section 3, equation 4.
    """
    return multiple_negatives_ranking(first, second, scale=1.0 / temperature)


def contrastive_tension(first: Float[Array, "b d"], second: Float[Array, "b d"], *, negatives: int = 7) -> Scalar:
    """Binary cross-entropy of dot products of two encoders, with target 1 for the same sentence and 0 for others.

    Sentence i of the first encoder is paired with i + 1, i + 2, ..., i + `negatives` of the second, in a batch of
    random order; `negatives` is at least 1 and less than b.

    References:
      Carlsson et al., Semantic Re-tuning with Contrastive Tension (ICLR 2021), section 3, equation 1.
    """
    rows = len(first)
    if not 1 <= negatives < rows:
        raise InputError(f"negatives is {negatives}; a batch of {rows} sentences has 1 to {rows - 1} for each.")
    scores = jnp.matmul(first, second.T, precision="highest")
    ahead = (jnp.arange(rows)[None, :] - jnp.arange(rows)[:, None]) % rows
    losses = jax.nn.softplus(jnp.where(ahead == 0, -scores, scores))
    return jnp.sum(jnp.where(ahead <= negatives, losses, 0.0)) / (rows * (negatives + 1))
