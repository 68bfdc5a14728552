"""Flax NNX encoders: configuration, layers, families, and reading and writing their weights."""

from typing import TYPE_CHECKING

from jaxwhiten._lazy import exports
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.folders import FAMILIES, load_config, resolve_folder

if TYPE_CHECKING:
    from jaxwhiten.models.heads import (
        PairClassifier,
        load_pair_classifier,
        save_pair_classifier,
    )
    from jaxwhiten.models.layers import Context, EncoderOutput, linear
    from jaxwhiten.models.loading import init_model, load_model, save_model
    from jaxwhiten.models.positions import rotary
    from jaxwhiten.models.static import StaticEncoder
    from jaxwhiten.models.transformer import TransformerEncoder

__getattr__, __dir__ = exports(__name__)

__all__ = ["FAMILIES", "Context", "EncoderConfig", "EncoderOutput", "PairClassifier"]
__all__ += ["StaticEncoder", "TransformerEncoder", "init_model", "linear", "load_config"]
__all__ += ["load_model", "load_pair_classifier", "resolve_folder", "rotary"]
__all__ += ["save_model", "save_pair_classifier"]
