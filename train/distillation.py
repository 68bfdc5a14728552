"""Distillation by similarities: a student learns the scores that a teacher gives, of any width or a cross-encoder.

References:
  Barkan et al., Scalable Attentive Sentence-Pair Modeling via Distilled Sentence Embedding (AAAI 2020).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten import CrossEncoder
from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.errors import Bounds, InputError
from jaxwhiten.losses import Loss, cosine, cosine_regression
from jaxwhiten.training import Objective, Plan, Setup, plan_sentences, plan_taught


def regressed_scores(u: Float[Array, "b d"], v: Float[Array, "b d"], teacher: Float[Array, "b 2 e"]) -> Scalar:
    """Regression of the teacher's score of each pair (DSE; Barkan et al., AAAI 2020, section 3)."""
    return cosine_regression(u, v, cosine(teacher[:, 0], teacher[:, 1]))


def listwise_distillation(u: Float[Array, "b d"], teacher: Float[Array, "b 1 e"], *, scale: float = 20.0) -> Scalar:
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

    target = log_shares(teacher[:, 0])
    student = log_shares(u)
    return jnp.mean(jnp.sum(jnp.exp(target) * (target - student), axis=-1))


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


def plan_margins(objective: Objective, loss: Loss, setup: Setup, *, teacher: str = "") -> Plan:
    """Generative pseudo labelling: query, positive and negative, with the margin of a cross-encoder as the label.

    References:
      Wang et al. 2022, "GPL: Generative Pseudo Labeling for Unsupervised Domain Adaptation of Dense Retrieval".
    """
    if not teacher:
        raise InputError(
            f"The objective {objective.name!r} takes its labels from a cross-encoder: specify it as settings.teacher."
        )
    scorer = CrossEncoder.from_pretrained(teacher)
    scorer.activation = "Identity"
    query, *others = setup.columns
    positive, negative = (scorer.predict(list(zip(query, texts, strict=True))) for texts in others)
    plan = plan_sentences(objective, loss, setup)
    return dataclasses.replace(plan, labels=positive - negative, teacher=scorer.fingerprint)


DISTIL_PAIRS = Objective("distil_pairs", regressed_scores, (2, 2), "vector", plan=plan_taught)
SCALE = {"scale": Bounds(1e-4, 1e4)}
DISTIL_LISTWISE = Objective(
    "distil_listwise", listwise_distillation, (1, 1), "vector", plan=plan_taught, in_batch=True, bounds=SCALE
)
MARGIN_MSE = Objective("margin_mse", margin_mse, (3, 3), "margin", plan=plan_margins, bounds=SCALE)
