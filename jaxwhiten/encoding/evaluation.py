"""The correlation of an encoder's similarities with scores that people gave, for the user's own pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float

from jaxwhiten.datasets import Pairs, load_sts
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.errors import InputError, NonFiniteError
from jaxwhiten.metrics import spearman
from jaxwhiten.metrics.bootstrap import Interval, bootstrap_spearman
from jaxwhiten.text import uncounted
from jaxwhiten.whitening import TUNED, Moments, ScoredPairs, spread

Sentences = Sequence[str]
PairsLike = Pairs | ScoredPairs | tuple[Sentences, Sentences, Sequence[float]] | Iterable[tuple[str, str, float]]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`. Correlations of the similarities with the scores are × 100, and NaN if undefined."""

    spearman: float
    interval: Interval  # the 95 % bootstrap interval of Spearman's correlation
    pearson: float
    pairs: int  # their number
    similarity: str  # its name, such as "cosine"
    encoding: dict[str, Any]  # how the vectors were made (`Encoder.encoding`)
    resamples: int
    seed: int

    def __repr__(self) -> str:
        made = self.encoding
        return (
            f"Evaluation(Spearman {self.spearman:.2f} [{self.interval.low:.2f}, {self.interval.high:.2f}], Pearson"
            f" {self.pearson:.2f}, {self.pairs:,} pairs; {made['model']}, {made['pooling']}, {self.similarity}, up to"
            f" {made['max_length']} tokens, {made['dtype']})"
        )


@no_type_check  # at run time: invalid rows get a message of their own
def evaluate(encoder: Encoder, pairs: PairsLike, *, resamples: int = 10_000, seed: int = 0) -> Evaluation:
    """Scores an encoder on pairs that people have scored.

    Args:
      encoder: The encoder, with its default head and prompt and its `similarity_fn_name`.
      pairs: Pairs of a data set (`jaxwhiten.load_sts`); `(sentences_a, sentences_b, scores)`; rows of two sentences and
        a score; or `ScoredPairs`, whose vectors are compared directly.
      resamples, seed: Number and seed of the bootstrap's resamples.

    Raises:
      InputError: There are fewer than two pairs, all scores are equal or one is not finite, lists differ in length, or
        an item is not a sentence.

    References:
      Reimers, Beyer & Gurevych 2016, "Task-Oriented Intrinsic Evaluation of Semantic Textual Similarity", section 5.
    """
    first, second, gold = _columns(pairs)
    if not len(first) == len(second) == len(gold):
        raise InputError(f"{len(first)} and {len(second)} sentences, but {len(gold)} scores; pairs need as many.")
    if not np.isfinite(gold).all():
        raise NonFiniteError(f"The score of pair {int(np.argmin(np.isfinite(gold)))} is NaN or infinite.")
    if len(gold) < 2 or gold.min() == gold.max():
        raise InputError("The pairs need at least two different scores to be correlated with.")
    if not isinstance(pairs, ScoredPairs):
        texts = list(dict.fromkeys([*first, *second]))
        vectors, rows = encoder.encode(texts), {text: row for row, text in enumerate(texts)}
        first, second = (vectors[[rows[text] for text in side]] for side in (first, second))
    found = encoder.similarity_pairwise(first, second)
    interval = bootstrap_spearman(found, gold, [""] * len(gold), resamples, seed)["all"]
    with np.errstate(invalid="ignore", divide="ignore"):
        pearson = float(np.corrcoef(found, gold, dtype=np.float64)[0, 1])
    how = encoder.similarity_fn_name, encoder.encoding(), resamples, seed
    return Evaluation(100 * spearman(found, gold), interval, 100 * pearson, len(gold), *how)


def _columns(pairs: Any) -> tuple[Any, Any, Float[np.ndarray, " n"]]:
    """Both sides of the pairs, and the scores."""
    if isinstance(pairs, Pairs):
        first, second, gold = pairs.sentence1, pairs.sentence2, pairs.score
    else:
        parts: Any = pairs if isinstance(pairs, tuple) else list(pairs)
        if not (isinstance(parts, tuple) and len(parts) == 3 and not isinstance(parts[0], str | tuple)):
            if any(isinstance(row, str) or len(row) != 3 for row in parts):
                raise InputError("Expected rows of two sentences and a score, or (sentences_a, sentences_b, scores).")
            parts = list(zip(*parts, strict=True)) or [(), (), ()]
        first, second, gold = parts
    try:
        return first, second, np.asarray(gold, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The scores are not all numbers ({error}).") from error


def shipped_isoscore(encoder: Encoder) -> float:
    """The IsoScore of an encoder's vectors, without a code, for the 780 sentences that ship with the package."""
    pairs = load_sts("sts_sample").splits["test"]
    with uncounted():
        vectors = encoder.without_code().encode([*pairs.sentence1, *pairs.sentence2], show_progress=False)
    return spread(Moments().update(vectors))


def is_tuned(encoder: Encoder) -> bool:
    """Whether an encoder is tuned for similarity, judged by the spread of its vectors for sentences of many subjects.

    A whitening spreads the vectors of any encoder, so that vectors before it are judged. The user's own texts would be
    a worse test: with any encoder, texts of one subject spread out less.
    """
    return shipped_isoscore(encoder.before_whitening()) > TUNED
