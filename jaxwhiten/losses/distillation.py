"""Distillation: losses against a teacher's vectors."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten.losses.contrastive import cosine


def vector_regression(u: Float[Array, "b d"], teacher: Float[Array, "b d"]) -> Scalar:
    """Mean squared error between a student's vectors and its teacher's, over rows and components.

    References:
      Reimers and Gurevych, Making Monolingual Sentence Embeddings Multilingual (EMNLP 2020), section 3, equation 1.
    """
    return jnp.mean((u - teacher) ** 2)


def cosine_distance(u: Float[Array, "b d"], teacher: Float[Array, "b d"]) -> Scalar:
    """Mean of 1 − cos between a student's vectors and its teacher's, which compares only directions.

    References:
      Zhang et al., Jasper and Stella: distillation of SOTA embedding models (2024), the cosine loss.
    """
    return jnp.mean(1 - cosine(u, teacher))
