"""The settings of a training, with the defaults and help of `jaxwhiten.TrainingOptions`."""

import dataclasses

from ml_collections import ConfigDict, config_dict

from jaxwhiten.parameters import TrainingOptions


def get_config():
    options = TrainingOptions()
    config = ConfigDict({field.name: getattr(options, field.name) for field in dataclasses.fields(options)})
    config.progress = config_dict.placeholder(bool)
    del config["held_out"]  # of programs, in their own way
    return config
