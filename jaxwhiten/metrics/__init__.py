"""Similarities of vectors, and scores against human judgments: arrays in, numbers out."""

from jaxwhiten.metrics.scores import (
    SIMILARITIES,
    UNDEFINED,
    Gold,
    binary_scores,
    cosine_pairs,
    discounted_gains,
    precision_parts,
    recalls,
    reciprocal_ranks,
    similarity,
    similarity_pairwise,
    spearman,
    spearman_parts,
)

__all__ = ["UNDEFINED", "Gold", "binary_scores", "cosine_pairs", "discounted_gains", "recalls", "reciprocal_ranks"]
__all__ += ["SIMILARITIES", "precision_parts", "similarity", "similarity_pairwise", "spearman", "spearman_parts"]
