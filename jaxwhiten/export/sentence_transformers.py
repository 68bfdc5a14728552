"""Model folders that sentence-transformers, transformers and `Encoder.from_pretrained` all load."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxwhiten.encoding import Encoder
from jaxwhiten.export.cards import head_card, model_card
from jaxwhiten.head import Head, Truncate, write_folder


def save_trained(
    folder: str | Path,
    encoder: Encoder,
    *,
    base_model: str,
    recipe: Mapping[str, Any],
    scores: Mapping[str, float],
    before: Mapping[str, float],
    name: str | None = None,
) -> Path:
    """Writes a trained encoder, weights in float32, with a model card, and returns the folder.

    `base_model` is the model before training, `recipe` the settings of the run, `scores` and `before` the scores × 100
    by name, after training and before. `folder` and `name` are as for `export_sentence_transformer`.
    """
    folder, results = Path(folder), {"scores": scores, "before": before}
    card = model_card(name or folder.resolve().name, encoder, base_model=base_model, recipe=recipe, **results)
    settings, head = encoder.settings(), encoder.head
    if isinstance(last := head.steps[-1], Truncate):  # a setting of folders, which would be read as a layer to train
        settings, head = dataclasses.replace(settings, truncate_dim=last.k), Head.of(head.steps[:-1], head.form)
    return write_folder(folder, encoder.model(), encoder.tokenizer, head, settings=settings, card=card)


def export_sentence_transformer(
    folder: str | Path, encoder: Encoder, *, name: str | None = None, scores: Mapping[str, float] | None = None
) -> Path:
    """Writes an encoder and its head as a folder with a model card, ready to upload.

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.
      name: Name of the model in the card; by default the folder's name.
      scores: Spearman × 100, by task, for the card.

    Raises:
      InputError: The head has a step that such a folder cannot hold, or the folder is the model's own.
    """
    return encoder.save(folder, card=head_card(name or Path(folder).resolve().name, encoder, scores or {}))
