"""Encoding, shared by the evaluations."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from configs import processes
from eval.data.nli import NLIRows
from eval.poolings import fit_idf
from eval.settings import words
from jaxwhiten import Encoder, Moments
from jaxwhiten.arrays import as_floats
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.head import canonical
from jaxwhiten.runtime import distributed
from jaxwhiten.text import text_fingerprint
from jaxwhiten.views import View, at_once, together
from jaxwhiten.whitening import merge_moments

EMPTY = "."  # stands for an empty sentence, as in SentEval
IDF = "idf"  # a pooling whose weights are counted on the sentences that are encoded
ALL_PAIRS = "layers:*"  # every pair of two hidden states, WhiteningBERT's grid


def nonempty(text: str) -> str:
    """The sentence, `EMPTY` if it is blank."""
    if text.strip():
        return text
    return EMPTY


def pooling_names(value: object) -> tuple[str, ...]:
    """The poolings that a config names, each once; `IDF` and `ALL_PAIRS` remain for `expand_poolings`."""
    names = (name if name in (IDF, ALL_PAIRS) else canonical(name) for name in words("poolings", value))
    return tuple(dict.fromkeys(names))


def first_plain(names: Sequence[str]) -> str:
    """The pooling to load an encoder with: the first that depends on nothing else, or the mean."""
    return next((name for name in names if name not in (IDF, ALL_PAIRS)), "mean")


def expand_poolings(names: Sequence[str], encoder: Encoder, sentences: Sequence[str]) -> tuple[str, ...]:
    """The poolings with `IDF` counted on these sentences, and `ALL_PAIRS` replaced by this encoder's layer pairs."""
    expanded: list[str] = []
    for name in names:
        if name == ALL_PAIRS:
            pairs = itertools.combinations(range(encoder.view.core.config.num_layers + 1), 2)
            expanded += [f"layers:{first}+{second}" for first, second in pairs]
        elif name == IDF:
            expanded.append(fit_idf(encoder, sentences))
        else:
            expanded.append(name)
    return tuple(dict.fromkeys(expanded))


def encode(
    encoder: Encoder,
    sentences: Sequence[str],
    poolings: Sequence[str],
    batch_size: int | None = None,
    store: EmbeddingStore | None = None,
) -> dict[str, np.ndarray]:
    """The vectors of all sentences by pooling, in every process; each encodes its share. Codes are decoded.

    `batch_size` is not used where vectors are looked up and kept in a `store`.
    """
    distributed.check_same("model and sentences", [encoder.view.fingerprint, text_fingerprint(sentences)])
    share = processes.share(sentences)
    bars = show_progress()
    if store:
        encoded = store.encode(encoder, share, pooling=tuple(poolings), show_progress=bars)
    else:
        encoded = at_once(_views(encoder, poolings), share, batch_size, bars)
    return {pooling: processes.gather_rows(as_floats(vectors)) for pooling, vectors in encoded.items()}


def _views(encoder: Encoder, poolings: Sequence[str]) -> dict[str, View]:
    return {pooling: encoder.view.with_pooling(pooling) for pooling in poolings}


def show_progress() -> bool | None:
    """Bars as usual from the process that writes, none from the others."""
    if distributed.is_writer():
        return None
    return False


def nli_moments(
    encoder: Encoder, nli: NLIRows, poolings: Sequence[str], batch_size: int | None = None
) -> dict[str, Moments]:
    """Moments of both sides of every NLI row, by pooling; the vectors are not kept.

    A sentence that occurs several times is encoded once and counted as often as it occurs. Each process encodes its
    share; all have the moments of the whole.
    """
    counts = Counter(map(nonempty, nli.sentences))
    sentences = list(counts)
    repeats = np.fromiter(counts.values(), np.int64)
    distributed.check_same("the NLI rows", [text_fingerprint(sentences), int(repeats.sum())])
    sentences = processes.share(sentences)
    repeats = processes.share(repeats)
    moments = {pooling: Moments() for pooling in poolings}
    start = 0
    views = _views(encoder, poolings)
    for block in together(views, sentences, batch_size=batch_size, show_progress=show_progress()):
        stop = start + len(block[poolings[0]])
        for pooling, vectors in block.items():
            moments[pooling].update(np.repeat(vectors, repeats[start:stop], axis=0))
        start = stop
    return {pooling: merge_moments(of_share) for pooling, of_share in moments.items()}
