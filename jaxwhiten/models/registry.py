"""The supported families by `model_type`."""

from __future__ import annotations

from jaxwhiten.errors import ModelError
from jaxwhiten.models import bert, llama
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import Family, PairForm
from jaxwhiten.models.modernbert import MODERNBERT
from jaxwhiten.models.nomic_bert import NOMIC_BERT, NOMIC_BERT_MOE
from jaxwhiten.models.t5 import MT5, T5, T5_V1_1

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
    "nomic_bert_moe": NOMIC_BERT_MOE,  # files say nomic_bert
    "qwen3": llama.QWEN3,
    "bidirectional_pplx_qwen3": llama.BIDIRECTIONAL_QWEN3,
    "gemma3_text": llama.GEMMA3,
    "t5": T5,
    "t5_v1_1": T5_V1_1,  # files say t5
    "mt5": MT5,
    "eurobert": llama.EUROBERT,
    "gte": bert.GTE,
    "new": bert.GTE,
    "jina_embeddings_v3": bert.JINA_V3,
    "ministral3": llama.MINISTRAL3,
}


def pair_form(config: EncoderConfig) -> PairForm:
    """The family's classifiers of sentence pairs; ModelError if it has none."""
    family = FAMILIES.get(config.model_type)
    if family is None or family.pairs is None:
        able = ", ".join(name for name, family in FAMILIES.items() if family.pairs is not None)
        raise ModelError(f"{config.model_type}: this family has no classifiers of sentence pairs; use {able}.")
    return family.pairs
