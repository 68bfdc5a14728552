"""Contrastive losses: other sentences of the batch are the negatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten.arrays import normalize_on_device


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
