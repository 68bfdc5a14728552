"""The supported families by `model_type`."""

from __future__ import annotations

from jaxwhiten.errors import ModelError
from jaxwhiten.models.albert import ALBERT
from jaxwhiten.models.bert import BERT, ELECTRA, ROBERTA, XLM_ROBERTA
from jaxwhiten.models.distilbert import DISTILBERT
from jaxwhiten.models.family import Family
from jaxwhiten.models.modernbert import MODERNBERT
from jaxwhiten.models.mpnet import MPNET
from jaxwhiten.models.nomic_bert import NOMIC_BERT

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "electra": ELECTRA,
    "distilbert": DISTILBERT,
    "albert": ALBERT,
    "mpnet": MPNET,
    "modernbert": MODERNBERT,
    "nomic_bert": NOMIC_BERT,
}


def family_of(model_type: object, where: str) -> Family:
    """The family of a `config.json`'s `model_type`.

    Args:
      model_type: The value in the file, or None.
      where: The file's path, for messages.

    Raises:
      ModelError: The type is missing or not supported.
    """
    if not isinstance(model_type, str):
        raise ModelError(f"{where}: no model_type; is this the config.json of a Hugging Face model?")
    if model_type not in FAMILIES:
        raise ModelError(f"{where}: model_type {model_type!r} is not supported. Supported: {', '.join(FAMILIES)}.")
    return FAMILIES[model_type]
