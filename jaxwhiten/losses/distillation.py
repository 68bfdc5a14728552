"""Distillation: losses against a teacher's vectors or against its similarities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten.arrays import normalize_on_device
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


def listwise_distillation(u: Float[Array, "b d"], teacher: Float[Array, "b e"], *, scale: float = 20.0) -> Scalar:
    """Kullback-Leibler divergence between the teacher's and the student's similarities within the batch.

    For each sentence, both sides take a softmax over `scale` times its cosines with all other sentences; the loss is
    the mean of KL(teacher ‖ student) over the sentences.

    References:
      Ren et al., RocketQAv2 (EMNLP 2021), listwise distillation; Cao et al., Learning to Rank: From Pairwise Approach
      to Listwise Approach (ICML 2007), section 4.2, for the distribution.
    """

    def log_shares(x: Array) -> Array:
        x = normalize_on_device(x)
        cosines = jnp.matmul(x, x.T, precision="highest")
        itself = jnp.eye(len(x), dtype=bool)
        return jax.nn.log_softmax(jnp.where(itself, jnp.finfo(x.dtype).min, scale * cosines), axis=-1)

    wanted, found = log_shares(teacher), log_shares(u)
    return jnp.mean(jnp.sum(jnp.exp(wanted) * (wanted - found), axis=-1))


def margin_mse(
    query: Float[Array, "b d"],
    positive: Float[Array, "b d"],
    negative: Float[Array, "b d"],
    margin: Float[Array, " b"],
    *,
    scale: float = 20.0,
) -> Scalar:
    """Mean squared error between scale · (cos(q, p) − cos(q, n)) and a cross-encoder's margin.

    The paper uses dot products; scaled cosines match the search by vectors of unit length.

    >>> import jax.numpy as jnp
    >>> float(margin_mse(jnp.eye(2)[:1], jnp.eye(2)[:1], jnp.eye(2)[1:], jnp.array([17.0])))
    9.0

    References:
      Wang et al., GPL: Generative Pseudo Labeling (NAACL 2022), section 3, equation 2.
    """
    return jnp.mean((scale * (cosine(query, positive) - cosine(query, negative)) - margin) ** 2)
