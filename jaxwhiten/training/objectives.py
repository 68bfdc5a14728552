"""Objectives by name, their requirements on the data, and the planning of a run; distillation by a teacher's vectors.

The teacher encodes every sentence once. Its vectors, from the store of embeddings, are the rows' labels.

References:
  Reimers and Gurevych, Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation (EMNLP 2020).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxwhiten import losses
from jaxwhiten.codes.fit import fit
from jaxwhiten.encoding import EmbeddingStore, Encoder
from jaxwhiten.errors import Bounds, InputError, check_name
from jaxwhiten.losses import Loss
from jaxwhiten.training.plan import Objective, Plan, Setup, plan_lora, plan_sentences
from jaxwhiten.types import Array, Fields, Float, Int, Scalar
from jaxwhiten.whitening import Moments

_SAMPLE = 4096


def plan_taught(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A plan with a teacher's vectors, [n, columns, e], as labels of the loss.

    >>> from dataclasses import replace
    >>> taught = replace(setup, options=TrainingOptions(teacher="jaxwhiten-tiny"))
    >>> plan_taught(find_objective("distil_mse"), objective_loss("distil_mse"), taught).labels.shape
    (1, 2, 256)
    """
    options = setup.options
    if not options.teacher:
        raise InputError(
            f"The objective {objective.name!r} needs a teacher: specify a folder or a Hugging Face model ID."
        )
    encoder = Encoder.from_pretrained(
        options.teacher, pooling=options.teacher_pooling, max_length=setup.table.max_length
    )
    vectors = encode_columns(encoder, setup.columns)
    return dataclasses.replace(plan_sentences(objective, loss, setup), labels=vectors, teacher=encoder.view.fingerprint)


def plan_components(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A plan with a teacher's vectors, [n, 1, e], as labels; the loss compares them with the student's vectors."""
    plan = plan_taught(objective, lambda c, y, h: loss(c, to_student(y), h), setup)
    vectors = np.asarray(plan.labels)
    sample = np.arange(0, len(vectors), -(-len(vectors) // _SAMPLE))
    encoded = setup.start.encode([setup.columns[0][row] for row in sample.tolist()])
    to_student = student_map(vectors[:, 0], sample, encoded, setup.options.teacher_gamma)
    return plan


def encode_columns(
    encoder: Encoder, columns: Sequence[Sequence[str]], prompts: Sequence[str | None] = ()
) -> Float[np.ndarray, "n columns e"]:
    """The vectors of every row's sentences: computed once, and found again by a resumed run.

    >>> encode_columns(Encoder.from_pretrained("jaxwhiten-tiny"), [["A dog runs."], ["It rains."]]).shape
    (1, 2, 256)
    """
    store = EmbeddingStore()
    pairs = zip(columns, prompts or [None] * len(columns), strict=True)
    vectors = [store.encode(encoder.view.uncoded, list(column), prompt=prompt) for column, prompt in pairs]
    return np.stack(vectors, axis=1)


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
    weight = np.eye(width, dtype=np.float32)
    bias = np.zeros(width, np.float32)
    if vectors.shape[1] > width or gamma:
        whitening = fit(Moments.of(vectors), n_components=width, gamma=gamma, shrinkage=None).whitening
        assert whitening is not None
        weight, bias = whitening.kernel
    target = vectors[sample] @ weight + bias
    rotation, _, right = np.linalg.svd((target - target.mean(axis=0)).T @ (student - student.mean(axis=0)))
    turn = rotation @ right / np.sqrt(np.mean(target**2))
    return lambda x: jnp.matmul(x, weight @ turn, precision="highest") + bias @ turn


def _of_first(loss: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """A loss against the teacher's vectors of the first sentences, shortened to the trained prefix."""
    return lambda u, teacher: loss(u, teacher[:, 0, : u.shape[-1]])


SCALE = {"scale": Bounds(1e-4, 1e4)}
TEMPERATURE = {"temperature": Bounds(1e-4, 1e4)}
ONE = (1, 1)
TWO = (2, 2)
OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax", losses.softmax_classification, TWO, "class"),
        Objective("cosine", losses.cosine_regression, TWO, "score"),
        Objective("cosent", losses.cosent, TWO, "score", in_batch=True, bounds=SCALE),
        Objective("triplet", losses.triplet, (3, 3), bounds={"margin": Bounds(0.0, 1e4)}),
        Objective("mnr", losses.multiple_negatives_ranking, (2, None), in_batch=True, bounds=SCALE),
        Objective("simcse", losses.simcse, ONE, passes=2, in_batch=True, bounds=TEMPERATURE),
        Objective("distil_mse", _of_first(losses.vector_regression), ONE, "vector", plan=plan_components),
        Objective("distil_cosine", _of_first(losses.cosine_distance), ONE, "vector", plan=plan_components),
    )
}
"""The library's objectives by name. Every function here also takes an `Objective` that is not among them."""


def find_objective(objective: str | Objective) -> Objective:
    """The objective of this name; InputError for an unknown name suggests the nearest.

    >>> find_objective("mnr").in_batch
    True
    """
    if isinstance(objective, Objective):
        return objective
    check_name("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective]


def _settings(function: Callable[..., Any]) -> list[str]:
    """Names of the keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _bound(function: Callable[..., Any], settings: Fields) -> Callable[..., Any]:
    """The function with the settings that it accepts bound to it."""
    accepted = {name: settings[name] for name in _settings(function) if name in settings}
    if accepted:
        return functools.partial(function, **accepted)
    return function


def settings_of(objective: Objective) -> list[str]:
    """Names of the settings of an objective.

    >>> settings_of(find_objective("mnr"))
    ['scale']
    """
    return _settings(objective.loss) + _settings(objective.plan)


def objective_loss(
    objective: str | Objective, dims: Sequence[int] = (), weights: Sequence[float] = (), **settings: Any
) -> Loss:
    """The loss of the objective, `(columns, labels, head) -> loss`, with settings such as `scale`.

    `dims` and `weights` are passed to `jaxwhiten.losses.matryoshka`; without `dims` the loss is on whole vectors.
    For SimCSE the two columns are the two passes. InputError for an unknown name or setting.

    >>> loss = objective_loss("mnr", scale=1.0)
    >>> round(float(loss([jnp.eye(2), jnp.eye(2)], None, {})), 3)
    0.313
    """
    kind = find_objective(objective)
    for setting, value in settings.items():
        check_name(f"setting of the objective {kind.name!r}", setting, settings_of(kind))
        if setting in kind.bounds or type(value) in (int, float):
            kind.bounds.get(setting, Bounds(-1e6, 1e6)).check(setting, value)
    function = _bound(kind.loss, settings)

    def loss(columns: Sequence[Array], labels: Array | None, head: Mapping[str, Array]) -> Scalar:
        value: Scalar = function(*columns, *([] if kind.label is None else [labels]), **head)
        return value

    if dims:
        return losses.matryoshka(loss, dims, weights or None)
    return loss


def make_plan(objective: str | Objective, setup: Setup) -> Plan:
    """Plans a run of an objective; InputError for an unknown name or setting.

    >>> sorted(make_plan("mnr", setup).params)  # of the example of `Setup`
    ['encoder', 'head', 'steps']
    """
    options = setup.options
    kind = find_objective(objective)
    loss = objective_loss(kind, options.dims, options.weights, **options.settings)
    kind = dataclasses.replace(kind, plan=_bound(kind.plan, options.settings))
    if options.lora:
        return plan_lora(kind, loss, setup)
    return kind.plan(kind, loss, setup)
