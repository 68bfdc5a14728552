"""Scores of vectors against human judgments: arrays in, numbers out."""

from jaxwhiten.metrics.scores import (
    UNDEFINED,
    Gold,
    binary_scores,
    cosine_pairs,
    discounted_gains,
    precision_parts,
    recalls,
    reciprocal_ranks,
    spearman,
    spearman_parts,
)

__all__ = ["UNDEFINED", "Gold", "binary_scores", "cosine_pairs", "discounted_gains", "recalls", "reciprocal_ranks"]
__all__ += ["precision_parts", "spearman", "spearman_parts"]
