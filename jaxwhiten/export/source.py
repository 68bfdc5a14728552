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
    """An encoder, read as `Encoder.from_pretrained` does where it is only named, with a whitening behind it."""
    if not isinstance(model, Encoder):
        model = Encoder.from_pretrained(model, pooling=pooling, max_length=max_length, revision=revision)
    return model if whitening is None else model.with_whitening(whitening)
