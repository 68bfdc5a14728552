"""Model folders that sentence-transformers, transformers and `Encoder.from_pretrained` all load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.export.cards import head_card
from jaxwhiten.head import Head, Pooling, Step, write_folder
from jaxwhiten.models import TransformerEncoder
from jaxwhiten.text import BulkTokenizer


def check_pooling(pooling: str) -> str:
    """The pooling's own name; InputError where a fine-tuned model cannot be saved with it."""
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
    max_length: int = 128,
    steps: Sequence[Step] = (),
    card: str | None = None,
    dtype: str = "float32",
) -> Path:
    """Writes a model made in memory: weights, config, tokenizer, pooling, and a model card.

    Args:
      folder: New, empty, or one that jaxwhiten made, which is replaced as a whole, and returned.
      model: An encoder of `jaxwhiten.models`.
      tokenizer_folder: Where its tokenizer lies; the files are copied.
      pooling: A name that `check_pooling` passes.
      max_length: Longest sentence in tokens.
      steps: Steps on vectors after the pooling.
      card: Text of README.md; none is written without it.
      dtype: Type of the stored weights.
    """
    tokenizer = BulkTokenizer(Path(tokenizer_folder), max_length, special_tokens=model.special_tokens)
    head = Head.named(check_pooling(pooling))
    head = head.then(*steps) if steps else head
    return write_folder(folder, model, tokenizer, head, card=card, dtype=dtype)


def export_sentence_transformer(
    folder: str | Path, encoder: Encoder, *, name: str | None = None, scores: Mapping[str, float] | None = None
) -> Path:
    """Writes an encoder and its head as a folder that can be uploaded as it is, with a model card.

    Args:
      folder: New, empty, or one that jaxwhiten made, which is replaced as a whole, and returned.
      encoder: The encoder.
      name: What the card calls the model; by default the folder's name.
      scores: What the model scores, by task; in points.

    Raises:
      InputError: A step such a folder cannot say, or the model's own folder as the output.
    """
    return encoder.save(folder, card=head_card(name or Path(folder).resolve().name, encoder, scores or {}))
