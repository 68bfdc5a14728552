"""Scores of vectors against human judgements: arrays in, numbers out."""

from jaxwhiten.metrics.scores import (
    AGGREGATES,
    Gold,
    STSScores,
    average_cosine,
    cosine_pairs,
    discounted_gains,
    mrr_at_k,
    ndcg_at_k,
    partner_ranks,
    recall_at_k,
    reciprocal_ranks,
    spearman,
    sts_scores,
)
