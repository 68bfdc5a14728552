"""Inputs of a planner for a model folder."""

import dataclasses

from jaxwhiten import Encoder
from jaxwhiten.options import TrainingOptions
from jaxwhiten.training.plan import Setup
from jaxwhiten.training.sentences import tokenize_columns


def setup_for(folder, columns, length=32, pooling="mean", **options):
    """The folder's encoder, to be trained on columns of sentences."""
    start = Encoder.from_pretrained(folder, pooling=pooling, max_length=length)
    return Setup(
        start.module,
        start,
        columns,
        tokenize_columns(columns, start.view.core.tokenizer),
        options=TrainingOptions(**options),
    )


def changed(setup, **options):
    """The inputs with other options."""
    return dataclasses.replace(setup, options=dataclasses.replace(setup.options, **options))
