"""Flax NNX encoders: configuration, layers, families, and reading and writing their weights."""

from jaxwhiten.models.bert import Bert
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.layers import EncoderOutput
from jaxwhiten.models.loading import init_model, load_config, load_model, resolve_folder, save_model
from jaxwhiten.models.registry import FAMILIES

__all__ = [
    "FAMILIES",
    "Bert",
    "EncoderConfig",
    "EncoderOutput",
    "init_model",
    "load_config",
    "load_model",
    "resolve_folder",
    "save_model",
]
