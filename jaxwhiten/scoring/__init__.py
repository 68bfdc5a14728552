"""Scores of an encoder on a user's own pairs or searches, compared with lexical baselines."""

from jaxwhiten.scoring.data import ScoredPairs, read
from jaxwhiten.scoring.evaluation import evaluate
from jaxwhiten.scoring.result import Evaluation, Row
from jaxwhiten.scoring.words import BM25, TFIDF, cosines, count, nearest, tfidf, weigh

__all__ = ["BM25", "TFIDF", "Evaluation", "Row", "ScoredPairs", "cosines", "count", "evaluate", "nearest", "read"]
__all__ += ["tfidf", "weigh"]
