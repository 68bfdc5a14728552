"""Random rotations by seed: dense, or of Hadamard matrices and signs."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from jaxwhiten.errors import unknown_name

ROTATIONS = ("hadamard", "qr")


def random_rotation(kind: str, d: int, seed: int) -> Float64[np.ndarray, "d d"]:
    """An orthogonal matrix.

    Args:
      kind: `"qr"` is drawn from all rotations and reflections alike; `"hadamard"` mixes columns by random signs and
        Hadamard matrices, over the first and the last 2^m of them in turn where d is no power of two.
      d: Rows and columns.
      seed: Gives the same matrix again.

    Raises:
      InputError: No such kind.

    References:
      Mezzadri 2007, "How to generate random matrices from the classical compact groups", section 5 (qr).
      Ailon, Chazelle 2009, "The fast Johnson-Lindenstrauss transform", section 2 (hadamard).
    """
    rng = np.random.default_rng(seed)
    if kind == "qr":
        q, r = np.linalg.qr(rng.standard_normal((d, d)))
        return q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    if kind != "hadamard":
        raise unknown_name("rotation", kind, ROTATIONS)
    from scipy.linalg import hadamard

    size = 1 << (d.bit_length() - 1)
    mix = hadamard(size) / np.sqrt(size)
    rotation = np.eye(d)
    for start in [0] if size == d else [0, d - size, 0, d - size]:
        rotation *= rng.choice([-1.0, 1.0], d)
        rotation[:, start : start + size] = rotation[:, start : start + size] @ mix
    return rotation
