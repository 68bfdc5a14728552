"""Objectives and adapters by name: their requirements on the data, and the planning of a run."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import Array, Scalar

from jaxwhiten import losses
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.training.adapters import plan_lora, plan_on_vectors
from jaxwhiten.training.distillation import plan_components, plan_margins, plan_scores
from jaxwhiten.training.plan import Objective, Plan, Setup
from jaxwhiten.training.unsupervised import plan_ct, plan_simcse_whitened, plan_tsdae, plan_whitenedcse


def _regressed_score(u: Array, v: Array, teacher: Array) -> Scalar:
    """Regression of the teacher's score of each pair (DSE; Barkan et al., AAAI 2020, section 3)."""
    return losses.cosine_regression(u, v, losses.cosine(teacher[:, 0], teacher[:, 1]))


def _of_first(loss: Callable[..., Scalar], *, cut: bool = True) -> Callable[..., Scalar]:
    """A loss against the teacher's vectors of the first sentences; `cut` shortens them to the trained prefix."""

    @functools.wraps(loss)
    def against_first(u: Array, teacher: Array, **settings: Any) -> Scalar:
        return loss(u, teacher[:, 0, : u.shape[-1] if cut else None], **settings)

    return against_first


def _planned(*_: Array) -> Scalar:
    raise InputError("This objective trains more than an encoder: plan it with jaxwhiten.training.make_plan.")


ONE, TWO, THREE = (1, 1), (2, 2), (3, 3)
OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax", losses.softmax_classification, TWO, "class"),
        Objective("cosine", losses.cosine_regression, TWO, "score"),
        Objective("cosent", losses.cosent, TWO, "score", in_batch=True),
        Objective("triplet", losses.triplet, THREE),
        Objective("mnr", losses.multiple_negatives_ranking, (2, None), in_batch=True),
        Objective("simcse", losses.simcse, ONE, passes=2, in_batch=True),
        Objective("simcse_whitened", losses.simcse, ONE, passes=2, plan=plan_simcse_whitened, in_batch=True),
        Objective("whitenedcse", losses.whitenedcse, ONE, passes=2, plan=plan_whitenedcse, in_batch=True),
        Objective("ct", losses.contrastive_tension, ONE, plan=plan_ct, in_batch=True),
        Objective("tsdae", _planned, ONE, plan=plan_tsdae),
        Objective("distil_mse", _of_first(losses.vector_regression), ONE, "vector", plan=plan_components),
        Objective("distil_cosine", _of_first(losses.cosine_distance), ONE, "vector", plan=plan_components),
        Objective("distil_pairs", _regressed_score, TWO, "vector", plan=plan_scores),
        Objective(
            "distil_listwise", _of_first(losses.listwise_distillation, cut=False), ONE, "vector", plan=plan_scores
        ),
        Objective("margin_mse", losses.margin_mse, THREE, "margin", plan=plan_margins),
    )
}
"""Every objective by its name."""

ADAPTERS: dict[str, Callable[[Objective, losses.Loss, Setup], Plan]] = {
    "lora": plan_lora,
    "linear": plan_on_vectors,
    "bottleneck": plan_on_vectors,
}
"""Planners that train an adapter instead of the encoder, by the kind of adapter."""


def find_objective(name: str) -> Objective:
    """The objective of this name; InputError for an unknown name suggests the nearest."""
    check_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def _settings(function: Callable[..., Any]) -> list[str]:
    """Names of the keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _bound(function: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
    """The function with the settings that it accepts bound to it."""
    own = {name: settings[name] for name in _settings(function) if name in settings}
    return functools.partial(function, **own) if own else function


def own_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without the ones that only other objectives have; a config may hold those of several."""
    known = {kind: {*_settings(of.loss), *_settings(of.plan)} for kind, of in OBJECTIVES.items()}
    others = set().union(*known.values()) - known[find_objective(name).name]
    return {setting: value for setting, value in settings.items() if setting not in others}


def objective_loss(
    name: str, dims: Sequence[int] = (), weights: Sequence[float] | None = None, **settings: Any
) -> losses.Loss:
    """The loss of the named objective, `(columns, labels, head) -> loss`, with settings such as `scale`.

    `dims` and `weights` are passed to `jaxwhiten.losses.matryoshka`; without `dims` the loss is on whole vectors.
    For SimCSE the two columns are the two passes. InputError for an unknown name or setting.
    """
    kind = find_objective(name)
    known = _settings(kind.loss) + _settings(kind.plan)
    for setting in settings:
        check_name(f"setting of the objective {name!r}", setting, known)
    function = _bound(kind.loss, settings)

    def loss(columns: Sequence[Array], labels: Array | None, head: Mapping[str, Array]) -> Scalar:
        value: Scalar = function(*columns, *([] if kind.label is None else [labels]), **head)
        return value

    return losses.matryoshka(loss, dims, weights) if dims else loss


def make_plan(name: str, setup: Setup) -> Plan:
    """Plans a run by the name of its objective; InputError for an unknown objective, adapter or setting."""
    loss = objective_loss(name, setup.dims, setup.weights, **setup.settings)
    kind, adapter = OBJECTIVES[name], setup.adapter.kind
    kind = dataclasses.replace(kind, plan=_bound(kind.plan, setup.settings))
    if adapter:
        check_name("kind of adapter", adapter, ADAPTERS)
    plan: Plan = (ADAPTERS[adapter] if adapter else kind.plan)(kind, loss, setup)
    return plan
