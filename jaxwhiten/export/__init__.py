"""How others see us: folders and files that other libraries load."""

from jaxwhiten.export.faiss import save_faiss
from jaxwhiten.export.hub import save_hub_folder
from jaxwhiten.export.onnx import save_onnx
from jaxwhiten.export.sentence_transformers import export_sentence_transformer, model_card, save_sentence_transformer
from jaxwhiten.export.source import check_pooling

__all__ = [
    "check_pooling",
    "export_sentence_transformer",
    "model_card",
    "save_faiss",
    "save_hub_folder",
    "save_onnx",
    "save_sentence_transformer",
]
