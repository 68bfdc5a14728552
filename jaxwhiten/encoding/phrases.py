"""Words that a tokenizer splits, and phrases, that are frequent enough in a text to have vectors of their own.

References:
  Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality", equation 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice, pairwise

from jaxwhiten.text import BulkTokenizer

_LEAST = 5  # occurrences, and those that a phrase has left off before it is scored: word2phrase's default
_TOGETHER = 100.0  # how many times more often than by chance; word2phrase's default


def frequent(sentences: Sequence[str], tokenizer: BulkTokenizer, words: int = 0, phrases: int = 0) -> list[str]:
    """The most frequent words of more than one token, then the most frequent phrases of two words.

    A phrase is two neighbours that are found together far more often than their frequencies say.

    Args:
      sentences: Of the text.
      tokenizer: A WordPiece tokenizer.
      words, phrases: At most so many of each.

    Raises:
      InputError: Another kind of tokenizer.
    """
    spelled = tokenizer.words(sentences)
    counts = Counter(chain.from_iterable(spelled))
    total = sum(counts.values())
    often = [word for word, count in counts.most_common() if count >= _LEAST and word.isalpha()]
    split = [word for word, length in zip(often, tokenizer(often).lengths, strict=True) if length > 1]
    known = set(often)
    pairs = Counter(pair for found in spelled for pair in pairwise(found) if known.issuperset(pair))
    together = (
        f"{a} {b}" for (a, b), n in pairs.most_common() if (n - _LEAST) * total > _TOGETHER * counts[a] * counts[b]
    )
    return split[:words] + list(islice(together, phrases))
