"""Adapters on vectors: they start as the unchanged model, leave it frozen, and end as an ordinary folder."""

import pytest

from jaxwhiten.training import make_plan
from tests.training.test_plan_lora import before, check_adapter, folder, setup  # noqa: F401
from train.adapters import KINDS, on_vectors
from train.objectives import find_objective


@pytest.mark.parametrize("kind", KINDS)
def test_it_starts_as_the_model_learns_and_is_exported_whole(setup, folder, tmp_path, before, kind):  # noqa: F811
    plan = make_plan(on_vectors(find_objective("mnr"), kind, rank=4), setup)
    check_adapter(setup, plan, folder, tmp_path, before)
