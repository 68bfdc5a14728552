"""The supported families by `model_type`."""

from __future__ import annotations

from jaxwhiten.models import bert
from jaxwhiten.models.family import Family
from jaxwhiten.models.modernbert import MODERNBERT
from jaxwhiten.models.nomic_bert import NOMIC_BERT

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
}
