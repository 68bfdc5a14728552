"""Exports: folders and files that other libraries load, and their model cards."""

from jaxwhiten.export.cards import card, head_card, model_card
from jaxwhiten.export.databases import DATABASES, Database, code_of, front, save_database, turn
from jaxwhiten.export.files import save_faiss, save_onnx
from jaxwhiten.export.sentence_transformers import export_sentence_transformer, push_to_hub, save_trained

__all__ = [
    "DATABASES",
    "Database",
    "card",
    "code_of",
    "export_sentence_transformer",
    "front",
    "head_card",
]
__all__ += ["model_card", "push_to_hub", "save_database", "save_faiss", "save_onnx", "save_trained"]
__all__ += ["turn"]
