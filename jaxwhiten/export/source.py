"""What is exported: an encoder with its head."""

from __future__ import annotations

from pathlib import Path

from jaxwhiten.encoding import Encoder
from jaxwhiten.head import AUTO
from jaxwhiten.whitening import Whitening


def as_encoder(
    model: Encoder | str | Path,
    *,
    pooling: str = AUTO,
    max_length: int | None = None,
    whitening: Whitening | None = None,
    revision: str | None = None,
) -> Encoder:
    """An encoder, read where it is named, with a whitening behind it.

    Args:
      model: An encoder, to which `pooling`, `max_length` and `revision` do not apply; or a local folder or a hub id.
      pooling: As in `Encoder.from_pretrained`.
      max_length: As in `Encoder.from_pretrained`.
      whitening: A fitted whitening, or None.
      revision: Commit, tag or branch on the hub.

    Raises:
      InputError, MismatchError, ModelError: As `Encoder.from_pretrained` and `Encoder.with_whitening`.
    """
    if not isinstance(model, Encoder):
        model = Encoder.from_pretrained(model, pooling=pooling, max_length=max_length, revision=revision)
    return model if whitening is None else model.with_whitening(whitening)
