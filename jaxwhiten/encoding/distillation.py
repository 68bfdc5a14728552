"""Static encoders distilled from a teacher in closed form: vectors of its tokens, whitened with token frequencies.

    static = distil_static(Encoder.from_pretrained("all-MiniLM-L6-v2"), corpus, k=256)

A sentence's vector is the mean of its tokens' rows. Weighting by frequency gives the covariance of running text;
without weights, every token of the vocabulary would count once. With a corpus, least squares then brings the means near
the teacher's vectors of the corpus's sentences.

References:
  Yokoi, Bao, Kurita, Shimodaira 2024, "Zipfian Whitening" (frequencies as the weights of mean and covariance).
  Arora, Liang, Ma 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", section 3 (a / (a + p)).
"""

from __future__ import annotations

import dataclasses
import functools
import random
import warnings
from typing import Any

import numpy as np

from jaxwhiten.arrays import normalize
from jaxwhiten.codes.fit import fit as fit_moments
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.encoding.store import EmbeddingStore
from jaxwhiten.engines import mean_matrix
from jaxwhiten.errors import InputError, check_integer, warn
from jaxwhiten.head import Head, Normalize, at_pooling
from jaxwhiten.models import StaticEncoder
from jaxwhiten.text import BulkTokenizer, Texts, TokenIds, text_blocks
from jaxwhiten.types import Float, Float32, Float64
from jaxwhiten.views.stream import BLOCK, progress, vectors
from jaxwhiten.whitening import Moments, Whitening, WhiteningWarning

SENTENCES = 20_000  # of a corpus, drawn at random, that the teacher encodes
ENOUGH = 300  # different sentences; a fit to fewer gives a worse encoder than none
SIF = 1e-3  # a in the weight a / (a + p) of a token of frequency p
RIDGE = 0.03
_STEPS = 40  # of conjugate gradients
_NOISE = 1e-4  # relative size of directions that too few sentences determine
_TINY = np.finfo(np.float64).tiny
_UNSEEN = 0.5  # added to every count, so that every token has some weight in a small corpus
_UNUSED = ("[unused", "<unused")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A teacher's tokens with their vectors, and frequencies in a corpus; one serves every setting of `distil`.

    >>> vocabulary = Vocabulary.read(Encoder.from_pretrained("jaxwhiten-tiny"))
    >>> distil(vocabulary, k=64).encode("It rains.").shape
    (64,)
    """

    teacher: Encoder
    tokenizer: BulkTokenizer  # the teacher's, without special tokens
    frequencies: Float64[np.ndarray, " vocab"]  # share of each token in the corpus; by Zipf's law without a corpus
    alone: Float32[np.ndarray, "vocab d"]  # vector of each token as a sentence of its own
    drawn: list[str]  # sentences of the corpus for the teacher to encode; empty without a corpus
    words: np.ndarray  # mask of tokens that may occur in a sentence, without special and unused tokens

    @functools.cached_property
    def sentences(self) -> TokenIds:
        """The drawn sentences as tokens."""
        return self.tokenizer(self.drawn)

    @functools.cached_property
    def targets(self) -> Float32[np.ndarray, "n t"]:
        """The teacher's vectors of the drawn sentences, at unit length; computed at the first use, and kept."""
        return normalize(np.asarray(EmbeddingStore().encode(self.teacher.view.uncoded, self.drawn)))

    @classmethod
    def read(
        cls,
        teacher: Encoder,
        corpus: Texts | None = None,
        *,
        sentences: int = SENTENCES,
        seed: int = 0,
        show_progress: bool | None = None,
    ) -> Vocabulary:
        """Runs the teacher on its vocabulary and on sentences of a corpus.

        Args:
          teacher: Steps after its pooling are not applied to tokens, because the whitening replaces them.
          corpus: Sentences, read once; all their tokens are counted. None uses Zipf's law by order of the vocabulary. A
            corpus of fewer than `ENOUGH` different ones is ignored, with a warning.
          sentences: The number of sentences, drawn at random, that the teacher encodes; at least `ENOUGH`.
          seed: Seed of the draw.
          show_progress: As in `Encoder.encode`.
        """
        check_integer("sentences", sentences, ENOUGH)
        folder = teacher.view.core.tokenizer.folder
        size = teacher.view.core.config.vocab_size
        tokenizer = BulkTokenizer(folder, 1 << 20, size, special_tokens=False)
        special = tokenizer.special_ids
        words = np.ones(size, bool)
        words[[i for i, t in enumerate(tokenizer.vocabulary) if i in special or t.startswith(_UNUSED)]] = False
        words[tokenizer.vocab_size :] = False
        drawn: list[str] = []
        frequencies = _zipf(words)
        if corpus is not None:
            counts, found = _count(corpus, tokenizer, size, sentences, seed, show_progress)
            if not (counts * words).any():
                raise InputError("The corpus has no tokens to count: pass sentences of text.")
            if (distinct := len(set(found))) < ENOUGH:
                warn(f"The corpus is ignored: {distinct} different sentences, fewer than {ENOUGH}.")
            else:
                drawn = found
                frequencies = words * (counts + _UNSEEN)
                frequencies /= frequencies.sum()
        return cls(teacher, tokenizer, frequencies, _alone(teacher, size, show_progress), drawn, words)


def distil(
    vocabulary: Vocabulary,
    k: int = 256,
    *,
    gamma: float = 1.0,
    fit: bool = False,
) -> Encoder:
    """A static encoder from a vocabulary.

    >>> vocabulary = Vocabulary.read(Encoder.from_pretrained("jaxwhiten-tiny"))
    >>> [distil(vocabulary, k).dimension for k in (64, 128)]
    [64, 128]

    Args:
      vocabulary: From `Vocabulary.read`.
      k: Number of dimensions kept.
      gamma: Power of the whitening of the token vectors.
      fit: Whether ridge regression moves the rows, so that the vectors of the drawn sentences come near the teacher's
        whitened vectors.

    Returns:
      The encoder: the mean of the rows, at unit length.

    Raises:
      InputError: An argument is invalid, or the encoder would give every sentence the same vector.
    """
    if fit and not vocabulary.drawn:
        raise InputError(f"`fit` requires a corpus of at least {ENOUGH} different sentences.")
    p = vocabulary.frequencies
    shares = SIF / (SIF + p)
    moments = _weighted_moments(vocabulary.alone, p * shares)
    whitening = _whitening(moments, n_components=None if fit else k, gamma=gamma)
    table = (whitening.transform(vocabulary.alone) * (shares * vocabulary.words)[:, None]).astype(np.float32)
    if fit:
        table = _fitted(table, vocabulary, k)
    if not np.ptp(normalize(table[vocabulary.words]), axis=0).max() > _NOISE:
        advice = "use more varied sentences, or a teacher whose vectors differ"
        raise InputError(f"The table would give every sentence the same vector: {advice}.")
    name = vocabulary.teacher.name
    folder = vocabulary.tokenizer.folder
    model = StaticEncoder(table)
    longest = model.config.longest_input
    encoder = Encoder.from_module(model, folder, max_length=longest, name=f"{name}, static")
    return encoder.with_view(encoder.view.then(Normalize()))


def distil_static(
    teacher: Encoder,
    corpus: Texts | None = None,
    k: int = 256,
    *,
    show_progress: bool | None = None,
    **how: Any,
) -> Encoder:
    """A static encoder of k dimensions that replaces a teacher: `Vocabulary.read`, then `distil`.

    >>> distil_static(Encoder.from_pretrained("jaxwhiten-tiny"), k=64).encode("It rains.").shape
    (64,)

    Args:
      teacher: Any encoder with a tokenizer.
      corpus: Sentences similar to those to be encoded, read once; None for no corpus.
      k: Number of dimensions kept.
      show_progress: As in `Encoder.encode`.
      **how: Arguments of `distil`; with a corpus, `fit=True` gives the best encoder.

    Returns:
      The encoder; `save` writes a folder that sentence-transformers and model2vec load.
    """
    return distil(Vocabulary.read(teacher, corpus, show_progress=show_progress), k, **how)


def _zipf(words: np.ndarray) -> Float64[np.ndarray, " vocab"]:
    """The expected share of each token in texts, by Zipf's law for its rank in the vocabulary."""
    shares = words / np.maximum(np.cumsum(words), 1)
    return shares / shares.sum()


def _weighted_moments(vectors: Float[np.ndarray, "vocab d"], weights: Float64[np.ndarray, " vocab"]) -> Moments:
    """Moments with the weighted mean and covariance of the rows; rows of weight 0 are not counted."""
    n = int(np.count_nonzero(weights))
    shares = weights / weights.sum()
    mean = shares @ vectors
    scaled = (vectors - mean) * np.sqrt(n * shares)[:, None]
    return Moments(n, mean, scaled.T @ scaled)


def _whitening(moments: Moments, **params: Any) -> Whitening:
    with warnings.catch_warnings():  # a vocabulary is complete, not a sample of too few rows
        warnings.simplefilter("ignore", WhiteningWarning)
        whitening = fit_moments(moments, **{"shrinkage": None} | params).whitening
    assert whitening is not None
    return whitening


def _fitted(table: Float32[np.ndarray, "vocab d"], vocabulary: Vocabulary, k: int) -> Float32[np.ndarray, "vocab k"]:
    """The table whose means are nearest to the teacher's vectors, which are whitened to k dimensions.

    First a linear map M is fitted: min ‖A T M − Y‖². Then every row moves from there: min ‖A E − Y‖² + λ ‖E − T M‖²,
    solved for all columns at once by conjugate gradients; 40 steps suffice.
    """
    moments = Moments().update(vocabulary.targets)
    target = _whitening(moments, n_components=k, tuned=vocabulary.teacher.view.tuned)
    y = normalize(target.transform(vocabulary.targets)).astype(np.float64)
    means = mean_matrix(vocabulary.sentences, len(table))
    table = table @ np.linalg.lstsq((means @ table).astype(np.float64), y, rcond=_NOISE)[0].astype(np.float32)
    change = np.zeros(table.shape)
    residual = means.T @ (y - means @ table)
    direction = residual.copy()
    size = np.einsum("ij,ij->j", residual, residual)
    for _ in range(_STEPS):
        image = means.T @ (means @ direction) + RIDGE * direction
        step = size / np.maximum(np.einsum("ij,ij->j", direction, image), _TINY)
        change += step * direction
        residual -= step * image
        before = size
        size = np.einsum("ij,ij->j", residual, residual)
        direction = residual + size / np.maximum(before, _TINY) * direction
    return (table + change).astype(np.float32)


def _count(
    corpus: Texts, tokenizer: BulkTokenizer, size: int, wanted: int, seed: int, show: bool | None
) -> tuple[np.ndarray, list[str]]:
    """The count of each token, and `wanted` sentences drawn at random (Vitter 1985, algorithm R)."""
    counts = np.zeros(size)
    drawn = list[str]()
    draw = random.Random(seed)
    total = 0
    blocks = text_blocks(corpus, BLOCK)
    with progress(corpus, show) as bar:
        for block in blocks:
            counts += np.bincount(tokenizer(block).flat, minlength=size)
            for sentence in block:
                total += 1
                if len(drawn) < wanted:
                    drawn.append(sentence)
                elif (place := draw.randrange(total)) < wanted:
                    drawn[place] = sentence
            if bar is not None:
                bar.update(len(block))
    return counts, drawn


def _alone(teacher: Encoder, size: int, show: bool | None) -> np.ndarray:
    """The pooled vector of every token as a sentence of its own, between special tokens."""
    pooled = teacher.view.with_head(Head.of(at_pooling(teacher.view.head.steps)[0], teacher.view.head.form))
    left, right = teacher.view.core.tokenizer.around
    rows = np.empty((size, len(left) + 1 + len(right)), np.int32)
    rows[:, : len(left)], rows[:, len(left)], rows[:, len(left) + 1 :] = left, np.arange(size), right
    tokens = TokenIds(rows.ravel(), np.full(size, rows.shape[1]))
    with progress(range(size), show) as bar:
        return vectors(teacher.view.core.engine, tokens, {"": pooled.output}, bar=bar)[""]
