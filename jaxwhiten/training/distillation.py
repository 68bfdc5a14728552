"""Distillation: a student learns the vectors of a teacher.

The teacher encodes every sentence once. Its vectors, memory-mapped from the store of embeddings, are the rows' labels.

References:
  Reimers and Gurevych, Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation (EMNLP 2020).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxwhiten.encoding import EmbeddingStore, Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.losses import Loss
from jaxwhiten.training.plan import Objective, Plan, Setup, plan_sentences
from jaxwhiten.whitening import Moments, Whitening

_SAMPLE = 4096


def plan_taught(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A plan with a teacher's vectors, [n, columns, e], as labels of the loss."""
    options = setup.options
    if not options.teacher:
        raise InputError(
            f"The objective {objective.name!r} needs a teacher: specify a folder or a Hugging Face model ID."
        )
    encoder = Encoder.from_pretrained(
        options.teacher, pooling=options.teacher_pooling, max_length=setup.table.max_length
    )
    vectors = encode_columns(encoder, setup.columns)
    return dataclasses.replace(plan_sentences(objective, loss, setup), labels=vectors, teacher=encoder.fingerprint)


def plan_components(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A plan with a teacher's vectors, [n, 1, e], as labels; the loss compares them with the student's vectors."""
    plan = plan_taught(objective, lambda c, y, h: loss(c, to_student(y), h), setup)
    vectors = np.asarray(plan.labels)
    sample = np.arange(0, len(vectors), -(-len(vectors) // _SAMPLE))
    own = setup.start.encode([setup.columns[0][row] for row in sample.tolist()])
    to_student = student_map(vectors[:, 0], sample, own, setup.options.teacher_gamma)
    return plan


def encode_columns(
    encoder: Encoder, columns: Sequence[Sequence[str]], prompts: Sequence[str | None] = (None,)
) -> Float[np.ndarray, "n columns e"]:
    """The vectors of every row's sentences, memory-mapped: computed once, and found again by a resumed run."""
    store, encoder = EmbeddingStore(), encoder.without_code()
    if len({*prompts}) > 1:
        given = zip(columns, prompts, strict=True)
        return np.stack([store.encode(encoder, list(column), prompt=prompt) for column, prompt in given], axis=1)
    found = store.encode(encoder, list(itertools.chain(*columns)), prompt=prompts[0])
    return found.reshape(len(columns), -1, found.shape[-1]).swapaxes(0, 1)


def student_map(
    vectors: Float[np.ndarray, "n e"],
    sample: Int[np.ndarray, " s"],
    student: Float[np.ndarray, "s d"],
    gamma: float = 0.0,
) -> Callable[[Any], Float[Array, "*b d"]]:
    """The affine map from a teacher's vectors to the student's targets.

    First the vectors are whitened to the student's width with power γ, unless the widths are equal and γ is 0. Then a
    rotation brings them nearest to the untrained student's vectors, and a factor makes the mean square of a component
    1, as after a layer norm. Rotation and factor change no cosine.

    The teacher's `vectors` are at least as wide as the student's, which belong to the rows `sample`; γ = 0 is PCA.

    References:
      Schönemann, A generalized solution of the orthogonal Procrustes problem (1966).
    """
    width = student.shape[1]
    if vectors.shape[1] < width:
        raise InputError(
            f"The teacher has {vectors.shape[1]} dimensions, the student {width}: its components cannot be learned;"
            " use a wider teacher."
        )
    weight, bias = np.eye(width, dtype=np.float32), np.zeros(width, np.float32)
    if vectors.shape[1] > width or gamma:
        whitening = Whitening.from_moments(Moments().update(vectors), n_components=width, gamma=gamma)
        weight, bias = whitening.kernel
    target = vectors[sample] @ weight + bias
    left, _, right = np.linalg.svd((target - target.mean(axis=0)).T @ (student - student.mean(axis=0)))
    turn = left @ right / np.sqrt(np.mean(target**2))
    return lambda x: jnp.matmul(x, weight @ turn, precision="highest") + bias @ turn
