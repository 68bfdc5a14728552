"""How others see us: folders and files that other libraries load."""

from jaxwhiten.export.sentence_transformers import check_pooling, model_card, save_sentence_transformer

__all__ = ["check_pooling", "model_card", "save_sentence_transformer"]
