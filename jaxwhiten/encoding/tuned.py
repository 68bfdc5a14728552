"""Whether an encoder is tuned for similarity, judged by the spread of its vectors."""

from __future__ import annotations

from jaxwhiten.datasets import load_sts
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.text import uncounted
from jaxwhiten.whitening import TUNED, Moments, spread


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
