"""Model folders that sentence-transformers, transformers and `Encoder.from_pretrained` all load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.export.cards import head_card
from jaxwhiten.head import AUTO, Head, Pooling, Step, write_folder
from jaxwhiten.models import TransformerEncoder
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.whitening import Whitening


def as_encoder(model: Encoder | str | Path, *, whitening: Whitening | None = None, **reading: Any) -> Encoder:
    """An encoder, read as `Encoder.from_pretrained` does where it is only named, with a whitening behind it."""
    if not isinstance(model, Encoder):
        model = Encoder.from_pretrained(model, **reading)
    return model if whitening is None else model.with_whitening(whitening)


def check_pooling(pooling: str) -> str:
    """The pooling's own name, if a fine-tuned model can be saved with it.

    Raises:
      InputError: They cannot.
    """
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
      folder: Made if missing; files of the same names are replaced.
      model: An encoder of `jaxwhiten.models`.
      tokenizer_folder: Where its tokenizer lies; the files are copied.
      pooling: A name that `check_pooling` passes.
      max_length: Longest sentence in tokens.
      steps: Steps on vectors after the pooling.
      card: Text of README.md; none is written without it.
      dtype: Type of the stored weights.

    Returns:
      The folder.

    Raises:
      InputError: A pooling such a folder cannot say.
    """
    tokenizer = BulkTokenizer(Path(tokenizer_folder), max_length, special_tokens=model.special_tokens)
    head = Head.named(check_pooling(pooling))
    head = head.then(*steps) if steps else head
    return write_folder(folder, model, tokenizer, head, card=card, dtype=dtype)


def export_sentence_transformer(
    folder: str | Path,
    model: Encoder | str | Path,
    *,
    pooling: str = AUTO,
    max_length: int | None = None,
    whitening: Whitening | None = None,
    name: str | None = None,
    scores: Mapping[str, float] | None = None,
    revision: str | None = None,
) -> Path:
    """Writes an encoder, its head and a whitening as a folder that can be uploaded as it is, with a model card.

    Args:
      folder: Made if missing; files of the same names are replaced.
      model: An encoder, or what `Encoder.from_pretrained` reads with `pooling`, `max_length` and `revision`.
      pooling: As in `Encoder.from_pretrained`.
      max_length: As in `Encoder.from_pretrained`.
      whitening: A fitted whitening, or None.
      name: What the card calls the model; by default the folder's name.
      scores: What the model scores, by task; in points.
      revision: Commit, tag or branch on the hub.

    Returns:
      The folder.

    Raises:
      InputError: A step such a folder cannot say, or the model's own folder as the output.
      MismatchError: A whitening of other vectors.
      ModelError: The model cannot be read.
    """
    encoder = as_encoder(model, pooling=pooling, max_length=max_length, whitening=whitening, revision=revision)
    card = head_card(name or Path(folder).resolve().name, encoder, scores or {})
    return encoder.save(folder, card=card)
