"""Model folders that sentence-transformers, transformers and `Encoder.from_pretrained` all load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.loading import tokenizer_for
from jaxwhiten.errors import InputError
from jaxwhiten.export.cards import head_card
from jaxwhiten.head import Head, Pooling, Step, write_folder
from jaxwhiten.models import TransformerEncoder


def check_pooling(pooling: str) -> str:
    """The canonical name of a pooling; InputError if a fine-tuned model cannot be saved with it."""
    head = Head.named(pooling)
    if any(isinstance(step, Pooling) and step.mode is None for step in head.steps):
        raise InputError(
            f"Pooling {pooling!r} cannot be exported; take a mode such as 'mean' or 'cls', or a mean of layers such as"
            " 'first_last_avg'."
        )
    return head.name


def save_sentence_transformer(
    folder: str | Path,
    model: TransformerEncoder,
    tokenizer_folder: str | Path,
    *,
    pooling: str = "mean",
    max_length: int | None = None,
    steps: Sequence[Step] = (),
    card: str | None = None,
    dtype: str = "float32",
) -> Path:
    """Writes a model made in memory: weights, config, tokenizer, pooling, and a model card.

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.
      model: An encoder of `jaxwhiten.models`.
      tokenizer_folder: The folder of its tokenizer; the files are copied.
      pooling: A name that `check_pooling` accepts.
      max_length: Maximum sentence length in tokens; by default the tokenizer folder's.
      steps: Steps on vectors after the pooling.
      card: Text of README.md; None writes none.
      dtype: Type of the stored weights.
    """
    tokenizer = tokenizer_for(model, Path(tokenizer_folder), max_length)
    head = Head.named(check_pooling(pooling))
    head = head.then(*steps) if steps else head
    return write_folder(folder, model, tokenizer, head, card=card, dtype=dtype)


def export_sentence_transformer(
    folder: str | Path, encoder: Encoder, *, name: str | None = None, scores: Mapping[str, float] | None = None
) -> Path:
    """Writes an encoder and its head as a folder with a model card, ready to upload.

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.
      encoder: The encoder.
      name: Name of the model in the card; by default the folder's name.
      scores: Spearman × 100, by task, for the card.

    Raises:
      InputError: The head has a step that such a folder cannot hold, or the folder is the model's own.
    """
    return encoder.save(folder, card=head_card(name or Path(folder).resolve().name, encoder, scores or {}))
