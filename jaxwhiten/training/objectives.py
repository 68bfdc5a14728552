"""Objectives by name: their requirements on the data, and the planning of a run."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import Array, Scalar

from jaxwhiten import losses
from jaxwhiten.errors import check_name
from jaxwhiten.training.distillation import plan_components
from jaxwhiten.training.plan import Objective, Plan, Setup, plan_lora


def _of_first(loss: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """A loss against the teacher's vectors of the first sentences, shortened to the trained prefix."""
    return lambda u, teacher: loss(u, teacher[:, 0, : u.shape[-1]])


ONE, TWO = (1, 1), (2, 2)
OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax", losses.softmax_classification, TWO, "class"),
        Objective("cosine", losses.cosine_regression, TWO, "score"),
        Objective("cosent", losses.cosent, TWO, "score", in_batch=True),
        Objective("triplet", losses.triplet, (3, 3)),
        Objective("mnr", losses.multiple_negatives_ranking, (2, None), in_batch=True),
        Objective("simcse", losses.simcse, ONE, passes=2, in_batch=True),
        Objective("distil_mse", _of_first(losses.vector_regression), ONE, "vector", plan=plan_components),
        Objective("distil_cosine", _of_first(losses.cosine_distance), ONE, "vector", plan=plan_components),
    )
}
"""The library's objectives by name. Every function here also takes an `Objective` that is not among them."""


def find_objective(objective: str | Objective) -> Objective:
    """The objective of this name; InputError for an unknown name suggests the nearest."""
    if isinstance(objective, Objective):
        return objective
    check_name("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective]


def _settings(function: Callable[..., Any]) -> list[str]:
    """Names of the keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _bound(function: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
    """The function with the settings that it accepts bound to it."""
    own = {name: settings[name] for name in _settings(function) if name in settings}
    return functools.partial(function, **own) if own else function


def settings_of(objective: Objective) -> list[str]:
    """Names of the settings of an objective."""
    return _settings(objective.loss) + _settings(objective.plan)


def objective_loss(
    objective: str | Objective, dims: Sequence[int] = (), weights: Sequence[float] = (), **settings: Any
) -> losses.Loss:
    """The loss of the objective, `(columns, labels, head) -> loss`, with settings such as `scale`.

    `dims` and `weights` are passed to `jaxwhiten.losses.matryoshka`; without `dims` the loss is on whole vectors.
    For SimCSE the two columns are the two passes. InputError for an unknown name or setting.
    """
    kind = find_objective(objective)
    for setting in settings:
        check_name(f"setting of the objective {kind.name!r}", setting, settings_of(kind))
    function = _bound(kind.loss, settings)

    def loss(columns: Sequence[Array], labels: Array | None, head: Mapping[str, Array]) -> Scalar:
        value: Scalar = function(*columns, *([] if kind.label is None else [labels]), **head)
        return value

    return losses.matryoshka(loss, dims, weights or None) if dims else loss


def make_plan(objective: str | Objective, setup: Setup) -> Plan:
    """Plans a run of an objective; InputError for an unknown name or setting."""
    options, kind = setup.options, find_objective(objective)
    loss = objective_loss(kind, options.dims, options.weights, **options.settings)
    kind = dataclasses.replace(kind, plan=_bound(kind.plan, options.settings))
    return plan_lora(kind, loss, setup) if options.lora else kind.plan(kind, loss, setup)
