"""Whether an encoder gives what sentence-transformers gives with the same folder."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np

from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import MismatchError, optional
from jaxwhiten.metrics.scores import cosine_pairs
from jaxwhiten.models.folders import resolve_folder

_ALLOWED = 1e-4  # difference of an entry, relative to the largest one if that is above 1
_BYTES = 0.05  # share of bytes of codes, whose values may lie on the border of two bytes


def check_vectors(encoder: Encoder, name: str, texts: Sequence[str]) -> str:
    """Compares the vectors of an encoder, before a code, with those that sentence-transformers gives of its folder.

    Returns:
      What was found, in words.

    Raises:
      MismatchError: The vectors differ.
      MissingDependencyError: sentence-transformers is not installed.
    """
    actual = np.asarray(encoder.view.uncoded(texts))
    library = optional("sentence_transformers", "parity", "The comparison", "sentence-transformers")
    importlib.import_module("transformers.utils.logging").disable_progress_bar()
    peer = library.SentenceTransformer(str(resolve_folder(name)), device="cpu", model_kwargs={"dtype": "float32"})
    expected = peer.encode(texts, batch_size=1, show_progress_bar=False)  # its padding takes no part
    if actual.shape != expected.shape:
        raise MismatchError(f"{actual.shape[1]} dimensions; sentence-transformers gives {expected.shape[1]}.")
    difference = float(np.abs(actual - expected).max() / max(1.0, np.abs(expected).max()))
    found = f"smallest cosine {cosine_pairs(actual, expected).min():.7f}, largest difference {difference:.1e}"
    if not difference <= _ALLOWED:
        raise MismatchError(f"not those of sentence-transformers: {found}; expected up to {_ALLOWED:.0e}.")
    return f"those of sentence-transformers for {len(texts)} texts by {encoder.view.core.engine.name}: {found}"


def check_codes(encoder: Encoder, texts: Sequence[str]) -> str:
    """Compares the codes of an encoder with those of its vectors; MismatchError if many of their bytes differ."""
    code = encoder.view.head.code
    assert code is not None
    expected = code.encode(encoder.view.uncoded(texts))
    share = float((np.asarray(encoder.encode(texts)) != np.asarray(expected)).mean())
    if share > _BYTES:
        raise MismatchError(f"{share:.0%} of the bytes are not those of the vectors.")
    return f"{code.name}, {code.nbytes} bytes: those of the vectors"
