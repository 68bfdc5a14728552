"""Settings of objectives and options of training: every number has bounds, and at these the loss is finite."""

import dataclasses
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.options import TrainingOptions
from jaxwhiten.training import OBJECTIVES, find_objective, objective_loss


def numeric(objective):
    """The settings of an objective that are numbers."""
    functions = (objective.loss, objective.plan)
    parameters = [one for function in functions for one in inspect.signature(function).parameters.values()]
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and isinstance(one.default, int | float)]


SETTINGS = [(objective, setting) for objective in OBJECTIVES.values() for setting in numeric(objective)]
NAMES = [f"{objective.name} {setting}" for objective, setting in SETTINGS]
NONSENSE = [math.inf, -math.inf, math.nan, 1e308, -1, -1e-9, 0, "5"]


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize(("objective", "setting"), SETTINGS, ids=NAMES)
def test_a_setting_without_sense_is_refused_by_name(objective, setting, value):
    if value == 0 and setting == "margin":  # of which 0 has a meaning
        objective_loss(objective, **{setting: value})
        return
    with pytest.raises(InputError, match=setting):
        objective_loss(objective, **{setting: value})


@pytest.mark.parametrize("name", ["mnr", "cosent", "simcse", "triplet"])
def test_the_loss_and_its_gradient_are_finite_at_the_bounds(name):
    objective = find_objective(name)
    rng = np.random.default_rng(0)
    columns = [jnp.asarray(rng.normal(size=(6, 4)), jnp.float32) for _ in range(3 if name == "triplet" else 2)]
    label = jnp.linspace(0, 1, 6) if objective.label else None
    for setting, bounds in objective.bounds.items():
        for value in (bounds.low, bounds.high):
            loss = objective_loss(objective, **{setting: value})
            found = jax.value_and_grad(lambda first, loss=loss: loss([first, *columns[1:]], label, {}))(columns[0])
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


NUMBERS = {int: [-1], float: [math.inf, math.nan, 1e308, -1.0]}
OPTIONS = [
    *(
        (field.name, value)
        for field in dataclasses.fields(TrainingOptions)
        for value in NUMBERS.get(type(field.default), ())
    ),
    *(("weights", (value,)) for value in NUMBERS[float]),
    ("warmup", 1.0),
    ("decay", "linar"),
    ("optimizer", "adamm"),
]


@pytest.mark.parametrize(("name", "value"), OPTIONS)
def test_an_option_without_sense_is_refused_by_name(name, value):
    with pytest.raises(InputError, match=name):
        TrainingOptions(**{"dims": (4,), name: value})
