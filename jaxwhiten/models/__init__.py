"""Flax NNX encoders: configuration, layers, families, and reading and writing their weights."""

from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.layers import EncoderOutput
from jaxwhiten.models.loading import init_model, load_config, load_model, resolve_folder, save_model
from jaxwhiten.models.registry import FAMILIES
from jaxwhiten.models.transformer import TransformerEncoder

__all__ = [
    "FAMILIES",
    "EncoderConfig",
    "EncoderOutput",
    "TransformerEncoder",
    "init_model",
    "load_config",
    "load_model",
    "resolve_folder",
    "save_model",
]
