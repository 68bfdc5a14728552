"""Flax NNX encoders: configuration, layers, families, and reading and writing their weights."""

from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.cross import PairClassifier, load_pair_classifier, save_pair_classifier
from jaxwhiten.models.layers import EncoderOutput
from jaxwhiten.models.loading import init_model, load_config, load_model, resolve_folder, save_model
from jaxwhiten.models.masked import MaskedLM, init_masked_lm, load_masked_lm, save_masked_lm, with_rates
from jaxwhiten.models.registry import FAMILIES
from jaxwhiten.models.static import StaticEncoder
from jaxwhiten.models.transformer import TransformerEncoder
