"""What follows the hidden states: poolings, and what a sentence-transformers folder does after its Transformer."""

from jaxwhiten.head.pooling import AUTO, PARAMETRIC, POOLINGS, canonical, pool

__all__ = ["AUTO", "PARAMETRIC", "POOLINGS", "canonical", "pool"]
