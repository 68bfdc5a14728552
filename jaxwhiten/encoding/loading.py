"""Reads head and settings from a model folder, and makes the tokenizer of a model."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

from jaxwhiten.encoding.similarity import SIMILARITIES
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head import AUTO, Head, Normalize, PoolingWarning, Quantise, Settings, longest_text, read_head, says_head
from jaxwhiten.models import EncoderConfig
from jaxwhiten.text import BulkTokenizer


def read_parts(
    folder: Path, config: EncoderConfig, name: str, pooling: str, bare: bool
) -> tuple[Settings, Head | None]:
    """The settings and the head of a folder, which messages call `name`.

    If a pooling is named `bare`, or the folder has no head, settings that belong to a head are left out.
    """
    settings = Settings.read(folder)
    if settings.similarity_fn_name not in SIMILARITIES:  # a folder may name a similarity of multi-vector models
        settings = dataclasses.replace(settings, similarity_fn_name=None)
    if says_head(folder) and (pooling.startswith(AUTO) or not bare):
        head = read_head(folder, config)
        if settings.truncate_dim is not None:
            settings = dataclasses.replace(settings, truncate_dim=min(settings.truncate_dim, head.width(config)))
        if settings.similarity_fn_name not in (None, "cosine") and not isinstance(head.steps[-1], Normalize | Quantise):
            warnings.warn(
                f"{name} specifies the similarity {settings.similarity_fn_name!r}, and its vectors are not of unit"
                " length: scores of pairs use it, but searches and codes rank by cosine.",
                stacklevel=3,
            )
        return settings, head
    if pooling == AUTO:
        warnings.warn(
            f"{name} specifies no pooling: using the mean. Encoders not fine-tuned for similarity often do better with"
            " pooling='first_last_avg'; pooling='mean' silences this.",
            PoolingWarning,
            stacklevel=3,
        )
    return dataclasses.replace(settings, default_prompt_name=None, truncate_dim=None), None


def tokenizer_for(model: Any, folder: Path, max_length: int | None = None) -> BulkTokenizer:
    """A model's tokenizer, checked against the model; its length is by default the folder's."""
    config = model.config
    max_length = longest_text(folder, config) if max_length is None else max_length
    if not 3 <= max_length <= config.longest_input:
        raise InputError(f"max_length={max_length}: this model reads 3 to {config.longest_input} tokens.")
    tokenizer = BulkTokenizer(folder, max_length, config.vocab_size, special_tokens=model.special_tokens)
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} entries, the model's embedding {config.vocab_size}"
            " rows; the two do not match."
        )
    return tokenizer
