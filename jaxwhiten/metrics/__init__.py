"""Scores of vectors against human judgements: arrays in, numbers out."""

from jaxwhiten.metrics.scores import (
    UNDEFINED,
    Gold,
    binary_scores,
    cosine_pairs,
    discounted_gains,
    mrr_at_k,
    ndcg_at_k,
    recall_at_k,
    recalls,
    reciprocal_ranks,
    spearman,
)

__all__ = ["UNDEFINED", "Gold", "cosine_pairs", "discounted_gains"]
__all__ += ["binary_scores", "mrr_at_k", "ndcg_at_k", "recall_at_k", "recalls", "reciprocal_ranks"]
__all__ += ["spearman"]
