"""Scores of vectors against human judgments: arrays in, numbers out."""

from jaxwhiten.metrics.scores import (
    UNDEFINED,
    Gold,
    binary_scores,
    cosine_pairs,
    discounted_gains,
    recalls,
    reciprocal_ranks,
    spearman,
)

__all__ = ["UNDEFINED", "Gold", "binary_scores", "cosine_pairs", "discounted_gains", "recalls", "reciprocal_ranks"]
__all__ += ["spearman"]
