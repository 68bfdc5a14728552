"""Scores of an encoder on a user's own pairs or searches, compared with lexical baselines."""

from jaxwhiten.scoring.data import ScoredPairs, Unjudged, read
from jaxwhiten.scoring.evaluation import by_words, compared, encoded, evaluate
from jaxwhiten.scoring.measures import of_ranks
from jaxwhiten.scoring.result import Evaluation, Row
from jaxwhiten.scoring.words import BM25, TFIDF, best, cosines, count, nearest, weigh

__all__ = ["BM25", "TFIDF", "Evaluation", "Row", "ScoredPairs", "Unjudged", "best", "by_words", "compared", "cosines"]
__all__ += ["count", "encoded", "evaluate", "nearest", "of_ranks", "read", "weigh"]
