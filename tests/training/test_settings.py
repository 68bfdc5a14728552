"""Settings of objectives and options of training: every number has bounds, and at these the loss is finite."""

import dataclasses
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.datasets import Examples
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.options import TrainingOptions
from jaxwhiten.training import OBJECTIVES, find_objective, objective_loss
from jaxwhiten.training.rows import read_rows


def numeric(objective):
    """The settings of an objective that are numbers."""
    functions = (objective.loss, objective.plan)
    parameters = [one for function in functions for one in inspect.signature(function).parameters.values()]
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and isinstance(one.default, int | float)]


SETTINGS = [(objective, setting) for objective in OBJECTIVES.values() for setting in numeric(objective)]
NAMES = [f"{objective.name} {setting}" for objective, setting in SETTINGS]
OPTIONS = [field for field in dataclasses.fields(TrainingOptions) if type(field.default) in (int, float)]


NONSENSE = [math.inf, -math.inf, math.nan, 1e308, -1, -1e-9, "5"]


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize(("objective", "setting"), SETTINGS, ids=NAMES)
def test_a_setting_without_sense_is_refused_by_name(objective, setting, value):
    with pytest.raises(InputError, match=setting):
        objective_loss(objective, **{setting: value})
    if setting in ("margin", "deletion"):  # of which 0 has a meaning
        objective_loss(objective, **{setting: 0})
    else:
        with pytest.raises(InputError, match=setting):
            objective_loss(objective, **{setting: 0})


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


@pytest.mark.parametrize("field", OPTIONS, ids=lambda field: field.name)
def test_an_option_without_sense_is_refused_by_name(field):
    for value in [-1] if type(field.default) is int else [math.inf, math.nan, 1e308, -1.0]:
        with pytest.raises(InputError, match=field.name):
            TrainingOptions(**{field.name: value})
        with pytest.raises(InputError, match="weights"):
            TrainingOptions(dims=(4,), weights=(float(value),))


@pytest.mark.parametrize("score", [1e308, -1e308, 1e39])
def test_a_score_beyond_float32_is_named_with_its_row(tmp_path, score):
    path = tmp_path / "t.csv"
    path.write_text(f"sentence1,sentence2,score\na,b,0\nc,d,{score}\ne,f,1\n")
    objective = find_objective("cosine")
    with pytest.raises(DataError, match=r"line 3: .*score"):
        read_rows(path, objective)
    examples = read_rows(path, objective, skip_bad_rows=True)
    assert (examples.label.tolist(), examples.skipped) == ([0, 1], 1)
    with pytest.raises(InputError, match=r"Row 1: .*float32"):
        Examples({"a": ["a", "b"], "b": ["c", "d"]}, np.array([0.0, score]))


@pytest.mark.parametrize("ends", [(0, math.inf), (0, 1e308), (math.nan, 1), (1, 1)])
def test_a_score_range_is_of_two_numbers(ends):
    with pytest.raises(InputError, match="score_range"):
        read_rows([("a", "b", 1), ("c", "d", 0)], find_objective("cosine"), score_range=ends)
