"""Distillation: a student learns the vectors of a teacher, or whom the teacher finds similar.

The teacher reads every sentence once; its vectors stay in the store of embeddings, memory-mapped, and go with the rows
as their labels. Where they are compared with the student's own, component by component, a wider teacher's are brought
to the student's width by PCA, or by any other power γ of the whitening of the sentences at hand, and turned towards
the student's.

References:
  Reimers and Gurevych, Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation (EMNLP 2020).
  Barkan et al., Scalable Attentive Sentence-Pair Modeling via Distilled Sentence Embedding (AAAI 2020).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxwhiten import losses
from jaxwhiten.encoding import CrossEncoder, EmbeddingStore, Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.training.plan import PLANNERS, Plan, Setup, plan_sentences
from jaxwhiten.whitening import Moments, Whitening

SETTINGS: dict[str, Any] = {"pooling": "auto", "gamma": 0.0}
"""Settings of a teacher beside `model`, with their defaults."""
_BY_COMPONENT = ("distil_mse", "distil_cosine")
_SAMPLE = 4096


def plan_distillation(objective: str, setup: Setup) -> Plan:
    """A plan whose labels are a teacher's vectors, [n, columns, e].

    Args:
      objective: One of `distil_mse`, `distil_cosine`, `distil_pairs`, `distil_listwise`.
      setup: `teacher` holds `model` (a folder or hub id), `pooling` and `gamma`.

    Raises:
      InputError: No teacher, or one narrower than a student that has to learn its components.
      ModelError: The teacher cannot be read.
    """
    teacher = SETTINGS | dict(setup.teacher)
    if not teacher.get("model"):
        raise InputError(
            f"The objective {objective!r} needs a teacher: name a folder or a hub id as config.teacher.model."
        )
    plan = plan_sentences(objective, setup)
    encoder = Encoder.from_pretrained(teacher["model"], pooling=teacher["pooling"], max_length=setup.max_length)
    vectors = encode_columns(encoder.without_code(), setup.columns)
    if objective in _BY_COMPONENT:
        plain = losses.objective(objective, **setup.matryoshka, **setup.settings)
        sample = np.arange(0, len(vectors), -(-len(vectors) // _SAMPLE))
        own = setup.encoder().encode([setup.columns[0][row] for row in sample.tolist()])
        to_student = student_map(vectors[:, 0], sample, own, teacher["gamma"])
        plan = plan_sentences(objective, setup, lambda c, y, h: plain(c, to_student(y), h))
    return dataclasses.replace(plan, labels=vectors)


def plan_margins(objective: str, setup: Setup) -> Plan:
    """Query, positive and negative with the margin of a cross-encoder as their label: generative pseudo labelling.

    The setting `teacher` names the cross-encoder's folder.

    References:
      Wang et al. 2022, "GPL: Generative Pseudo Labeling for Unsupervised Domain Adaptation of Dense Retrieval".
    """
    settings = dict(setup.settings)
    if not settings.get("teacher"):
        raise InputError(f"The objective {objective!r} takes its labels from a cross-encoder: name it as teacher.")
    teacher = CrossEncoder.from_pretrained(settings.pop("teacher"))
    teacher.activation = "Identity"
    query, *others = setup.columns
    positive, negative = (teacher.predict(list(zip(query, texts, strict=True))) for texts in others)
    plan = plan_sentences(objective, dataclasses.replace(setup, settings=settings))
    return dataclasses.replace(plan, labels=positive - negative)


def encode_columns(encoder: Encoder, columns: Sequence[Sequence[str]]) -> Float[np.ndarray, "n columns e"]:
    """The vectors of every row's sentences, memory-mapped: computed once, found again by a run that goes on."""
    found = EmbeddingStore().encode(encoder, list(itertools.chain(*columns)))
    return found.reshape(len(columns), -1, found.shape[-1]).swapaxes(0, 1)


def student_map(
    vectors: Float[np.ndarray, "n e"],
    sample: Int[np.ndarray, " s"],
    student: Float[np.ndarray, "s d"],
    gamma: float = 0.0,
) -> Callable[[Any], Float[Array, "*b d"]]:
    """The affine map from a teacher's vectors to what a student has to learn.

    It is the whitening of these vectors to the student's width with power γ, none where there is nothing to reduce and
    γ is 0; then the rotation that brings them nearest to the student's own vectors, as it stands before training, and
    one factor that makes the mean square of a component 1, as it is behind a layer norm. The last two change no cosine.

    Args:
      vectors: The teacher's.
      sample: Rows that the rotation is fitted on.
      student: The student's own vectors of these rows.
      gamma: 0 is PCA.

    Raises:
      InputError: The teacher is narrower than the student.

    References:
      Schönemann, A generalized solution of the orthogonal Procrustes problem (1966).
    """
    width = student.shape[1]
    if vectors.shape[1] < width:
        raise InputError(
            f"The teacher gives {vectors.shape[1]} numbers, the student {width}: its components cannot be learned; take"
            " the objective distil_listwise or distil_pairs, which compare scores."
        )
    weight, bias = np.eye(width, dtype=np.float32), np.zeros(width, np.float32)
    if vectors.shape[1] > width or gamma:
        whitening = Whitening.from_moments(Moments().update(vectors), n_components=width, gamma=gamma)
        weight, bias = whitening.kernel
    target = vectors[sample] @ weight + bias
    left, _, right = np.linalg.svd((target - target.mean(axis=0)).T @ (student - student.mean(axis=0)))
    turn = left @ right / np.sqrt(np.mean(target**2))
    return lambda x: jnp.matmul(x, weight @ turn, precision="highest") + bias @ turn


PLANNERS |= dict.fromkeys((*_BY_COMPONENT, "distil_pairs", "distil_listwise"), plan_distillation)
PLANNERS["margin_mse"] = plan_margins
