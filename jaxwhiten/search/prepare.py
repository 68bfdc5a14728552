"""What happens to a vector on its way into an index or a search: checked, whitened, scaled to unit length."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from jaxwhiten.arrays import blocks
from jaxwhiten.errors import InputError, NonFiniteError

BLOCK_ROWS = 16384


def check_vectors(what: str, x: np.ndarray, dimension: int | None = None) -> None:
    """Refuses what cannot be indexed or searched for; `what` the vectors are stands in the message."""
    if not isinstance(x, np.ndarray) or x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        found = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"The {what} must be a floating-point array [n, d], not {found}.")
    if not x.size:
        raise InputError(f"No {what}: an array of shape {x.shape}.")
    if dimension is not None and x.shape[1] != dimension:
        raise InputError(f"The {what} have {x.shape[1]} dimensions, the index takes {dimension}.")
    for part in blocks(len(x), BLOCK_ROWS):
        check_lengths(what, x[part], part.start)


def check_lengths(what: str, x: np.ndarray, first: int = 0) -> None:
    """Refuses rows that are zero or not finite; `first` is the number of the first row, for the message."""
    # One pass in the usual case: a NaN or an infinity makes the sum of squares non-finite, too.
    squares = np.einsum("nd,nd->n", x, x, dtype=np.float64, casting="same_kind")
    if not np.isfinite(squares).all():
        row = int(np.argmin(np.isfinite(squares)))
        raise NonFiniteError(f"Row {first + row} of the {what} holds a NaN or an infinity.")
    if not squares.all():
        row = int(np.argmin(squares))
        raise InputError(
            f"Row {first + row} of the {what} is a zero vector, which has no direction and so no nearest neighbours."
            " Leave it out."
        )


@dataclass(frozen=True)
class Prepare:
    """Turns raw vectors into what an index stores: x W + b if there is a W, then unit length if `normalize`."""

    weight: Float32[np.ndarray, "d k"] | None = None
    bias: Float32[np.ndarray, " k"] | None = None
    normalize: bool = True

    @classmethod
    def from_whitening(cls, whitening: Any | None, normalize: bool = True) -> Prepare:
        """From a fitted `Whitening` (anything with a `kernel` (W, b)), or None for raw vectors."""
        if whitening is None:
            return cls(normalize=normalize)
        kernel = getattr(whitening, "kernel", None)
        if kernel is None:
            raise InputError(
                f"{type(whitening).__name__} is not a map x W + b, so it cannot be put inside an index:"
                " transform the vectors first and build the index without it."
            )
        weight, bias = kernel() if callable(kernel) else kernel
        return cls(np.ascontiguousarray(weight, np.float32), np.ascontiguousarray(bias, np.float32), normalize)

    def dimension(self, raw: int) -> int:
        """The dimension stored for raw vectors of dimension `raw`."""
        if self.weight is None:
            return raw
        if self.weight.shape[0] != raw:
            raise InputError(f"The whitening takes {self.weight.shape[0]} dimensions, the vectors have {raw}.")
        return self.weight.shape[1]

    def hash(self) -> str | None:
        """SHA-256 over W and b, or None without a whitening."""
        if self.weight is None or self.bias is None:
            return None
        digest = hashlib.sha256(f"{self.weight.shape}".encode())
        digest.update(np.ascontiguousarray(self.weight).tobytes())
        digest.update(np.ascontiguousarray(self.bias).tobytes())
        return digest.hexdigest()

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n k"]:
        """The stored form of a block of raw vectors."""
        x = np.asarray(x, np.float32)
        if self.weight is not None:
            x = x @ self.weight + self.bias
        if self.normalize:
            lengths = np.sqrt(np.einsum("nd,nd->n", x, x))[:, None]
            x = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
        return np.ascontiguousarray(x)
