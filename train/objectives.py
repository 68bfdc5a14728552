"""The library's objectives and those that only experiments need, by name."""

from __future__ import annotations

import dataclasses

from jaxwhiten.errors import check_name
from jaxwhiten.training import OBJECTIVES as OF_LIBRARY
from jaxwhiten.training import Objective, TrainingOptions, settings_of
from train.distillation import DISTIL_LISTWISE, DISTIL_PAIRS, MARGIN_MSE
from train.tension import CT
from train.tsdae import TSDAE
from train.whitenedcse import WHITENEDCSE

OWN = (TSDAE, CT, WHITENEDCSE, DISTIL_PAIRS, DISTIL_LISTWISE, MARGIN_MSE)
OBJECTIVES = {**OF_LIBRARY, **{objective.name: objective for objective in OWN}}


def find_objective(name: str) -> Objective:
    """The objective of this name; InputError for an unknown name suggests the nearest."""
    check_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def own_settings(objective: Objective, options: TrainingOptions) -> tuple[TrainingOptions, list[str]]:
    """The options without settings that only other objectives have, and the names of these.

    A config may hold the settings of several objectives.
    """
    foreign = {name for other in OBJECTIVES.values() for name in settings_of(other)} - {*settings_of(objective)}
    settings = {name: value for name, value in options.settings.items() if name not in foreign}
    return dataclasses.replace(options, settings=settings), [name for name in options.settings if name in foreign]
