"""Text to vectors: the encoder, its batches and compiled forward, and the store of embeddings."""

from jaxwhiten.encoding.batching import length_ladder
from jaxwhiten.encoding.encoder import DEFAULT_POOLING, Encoder
from jaxwhiten.encoding.store import EmbeddingStore, text_fingerprint

__all__ = ["DEFAULT_POOLING", "EmbeddingStore", "Encoder", "length_ladder", "text_fingerprint"]
