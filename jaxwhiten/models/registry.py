"""The supported families by `model_type`."""

from __future__ import annotations

from jaxwhiten.errors import ModelError
from jaxwhiten.models import bert
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import Family, MaskedForm, PairForm
from jaxwhiten.models.modernbert import MODERNBERT
from jaxwhiten.models.nomic_bert import NOMIC_BERT
from jaxwhiten.models.qwen3 import BIDIRECTIONAL_QWEN3, QWEN3

FAMILIES: dict[str, Family] = {
    "bert": bert.BERT,
    "roberta": bert.ROBERTA,
    "xlm-roberta": bert.XLM_ROBERTA,
    "electra": bert.ELECTRA,
    "distilbert": bert.DISTILBERT,
    "albert": bert.ALBERT,
    "mpnet": bert.MPNET,
    "modernbert": MODERNBERT,
    "nomic_bert": NOMIC_BERT,
    "qwen3": QWEN3,
    "bidirectional_pplx_qwen3": BIDIRECTIONAL_QWEN3,
}


def masked_form(config: EncoderConfig) -> MaskedForm:
    """The head of the family's masked language models; ModelError where there is none."""
    family = FAMILIES.get(config.model_type)
    if family is None or family.masked is None:
        raise _no_head("masked language models", config, [name for name, each in FAMILIES.items() if each.masked])
    return family.masked


def pair_form(config: EncoderConfig) -> PairForm:
    """The head of the family's classifiers of sentence pairs; ModelError where there is none."""
    family = FAMILIES.get(config.model_type)
    if family is None or family.pairs is None:
        raise _no_head("classifiers of sentence pairs", config, [name for name, each in FAMILIES.items() if each.pairs])
    return family.pairs


def _no_head(what: str, config: EncoderConfig, able: list[str]) -> ModelError:
    return ModelError(f"{config.model_type}: no {what} of this family; take {', '.join(able)}.")
