"""Encoding that the evaluations share."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxwhiten import Encoder, Moments
from jaxwhiten.datasets import NLIRows

EMPTY = "."  # stands for an empty sentence, as in SentEval


def nli_moments(
    encoder: Encoder, nli: NLIRows, poolings: Sequence[str], batch_size: int | None = None
) -> dict[str, Moments]:
    """Moments of both sides of every NLI row, one a pooling; the vectors are not kept.

    A sentence that occurs several times is encoded once and counted as often as it occurs.
    """
    counts = Counter(text if text.strip() else EMPTY for text in itertools.chain(nli.premise, nli.hypothesis))
    repeats = np.fromiter(counts.values(), np.int64)
    moments = {pooling: Moments() for pooling in poolings}
    start = 0
    for block in encoder.encode_stream(list(counts), pooling=tuple(poolings), batch_size=batch_size):
        stop = start + len(block[poolings[0]])
        for pooling, vectors in block.items():
            moments[pooling].update(np.repeat(vectors, repeats[start:stop], axis=0))
        start = stop
    return moments
