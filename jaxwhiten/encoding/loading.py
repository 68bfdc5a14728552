"""Reads head, settings and maximum length from a model folder, and makes the tokenizer of a model."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

from jaxwhiten.encoding.similarity import SIMILARITIES
from jaxwhiten.errors import InputError, ModelError, spelled
from jaxwhiten.head import Head, Settings, read_head, says_head
from jaxwhiten.models import EncoderConfig
from jaxwhiten.text import BulkTokenizer

DEFAULT_MAX_LENGTH = 64


class PoolingWarning(UserWarning):
    """A model folder does not define how its vectors are pooled."""


def read_parts(folder: Path, config: EncoderConfig, name: str, auto: bool) -> tuple[Settings, Head | None, int]:
    """The settings, the head and the maximum sentence length of a folder, which messages call `name`.

    Without `auto`, or if the folder has no head, settings that belong to a head are left out.
    """
    settings = Settings.read(folder)
    if settings.similarity_fn_name not in SIMILARITIES:  # a folder may name a similarity of multi-vector models
        settings = dataclasses.replace(settings, similarity_fn_name=None)
    if auto and says_head(folder):
        head, longest = read_head(folder, config)
        if settings.truncate_dim is not None:
            settings = dataclasses.replace(settings, truncate_dim=min(settings.truncate_dim, head.width(config)))
        return settings, head, min(longest or config.longest_input, config.longest_input)
    if auto:
        warnings.warn(
            f"{name} does not say how its token vectors are pooled: taking the mean. An encoder that was not tuned"
            f" for similarity is often better with {spelled('pooling', 'first_last_avg')};"
            f" {spelled('pooling', 'mean')} silences this.",
            PoolingWarning,
            stacklevel=3,
        )
    return dataclasses.replace(settings, default_prompt_name=None, truncate_dim=None), None, DEFAULT_MAX_LENGTH


def tokenizer_for(model: Any, folder: Path, max_length: int) -> BulkTokenizer:
    """A model's tokenizer, checked against the model."""
    config = model.config
    if not 3 <= max_length <= config.longest_input:
        raise InputError(
            f"{spelled('max_length')} is {max_length}; this model takes 3 to {config.longest_input} tokens."
        )
    tokenizer = BulkTokenizer(folder, max_length, config.vocab_size, special_tokens=model.special_tokens)
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} entries, the model's embedding {config.vocab_size}"
            " rows; they do not belong together."
        )
    return tokenizer
