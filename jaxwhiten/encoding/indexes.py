"""Indexes of an encoder's texts: loaded with the encoder that their folder records."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxwhiten import search
from jaxwhiten.encoding.encoder import Encoder, encoder_of
from jaxwhiten.errors import MismatchError, ModelError
from jaxwhiten.search.text import query_vectors


def located(encoding: Mapping[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """The encoding that an index in a folder records, with the present place of its model."""
    if not (folder := encoding.get("folder")):
        return dict(encoding)
    places = [Path(encoding["model"]), Path(path).resolve().parent / encoding["model"], Path(folder)]
    if (model := next((str(place) for place in places if place.is_dir()), None)) is None:
        raise ModelError(f"{folder}: the model of the index {path} was not found: specify its location with `model`.")
    return {**encoding, "model": model}


def open_index(
    path: str | os.PathLike[str], model: str | None = None, engine: str | None = None
) -> tuple[search.Index, Encoder]:
    """An index, and the encoder of its texts; `model` is the encoder's current place, if it has moved.

    For float32 vectors, another `engine` may be chosen.
    """
    index = search.load_index(path)
    return index, _recorded(index, path, model, engine)


def _recorded(
    index: search.Index, path: str | os.PathLike[str], model: str | None = None, engine: str | None = None
) -> Encoder:
    if index.encoding is None:
        raise MismatchError(
            f"{path}: does not record its encoder, so queries cannot be encoded. Rebuild it with `jaxwhiten index`."
        )
    encoding = index.encoding if model else located(index.encoding, path)
    encoder = encoder_of({**encoding, "model": model or encoding["model"]}, engine=engine)
    bare = encoder.before_whitening()  # of a folder whose whitening or code the index itself has
    return bare if bare.space().head == encoding.get("head") else encoder


def load_index(path: str | os.PathLike[str], *, model: str | None = None) -> search.Index:
    """`jaxwhiten.search.load_index`, whose index also searches for texts, by the encoder that it records.

    The encoder is loaded for the first text; `model` is its current location, if it has moved.

    >>> Encoder.from_pretrained("jaxwhiten-tiny").index(["A dog runs.", "It rains."]).save("idx")
    >>> load_index("idx").search("a dog", k=1)[0].text
    'A dog runs.'
    """
    index = search.load_index(path)
    encoder = functools.cache(lambda: _recorded(index, path, model))
    index.queries = lambda texts: query_vectors(index, encoder(), texts)
    return index
