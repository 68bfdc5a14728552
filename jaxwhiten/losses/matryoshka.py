"""Matryoshka: any loss, summed over several prefixes of the vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.errors import InputError

Head = Mapping[str, Array]
"""Parameters of a loss: `kernel` and `bias` of the softmax classifier, empty otherwise."""

Loss = Callable[[Sequence[Float[Array, "b d"]], Array | None, Head], Scalar]
"""A loss for the training step, called with one array of vectors per text column, the labels and the parameters."""


def matryoshka(loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> Loss:
    """The weighted sum of `loss` over prefixes of the vectors, each prefix scaled to unit length.

    Works with every loss; the kernel of a softmax classifier is truncated too. Without `weights` all prefixes have
    weight 1.

    References:
      Kusupati et al., Matryoshka Representation Learning (NeurIPS 2022), section 3, equation 1.
    """
    weights = [1.0] * len(dims) if weights is None else list(weights)
    if not dims or min(dims) < 1 or len(weights) != len(dims):
        raise InputError(f"matryoshka needs positive prefix lengths and as many weights: got {dims!r}, {weights!r}.")

    def prefix_loss(columns: Sequence[Array], labels: Array | None, head: Head) -> Array:
        dimension = columns[0].shape[-1]
        if max(dims) > dimension:
            raise InputError(f"matryoshka prefix {max(dims)} is longer than the vectors ({dimension}).")
        total = jnp.zeros((), columns[0].dtype)
        for k, weight in zip(dims, weights, strict=True):
            cut = {name: value[:, :k] if name == "kernel" else value for name, value in head.items()}
            total += weight * loss([normalize_on_device(column[:, :k]) for column in columns], labels, cut)
        return total

    return prefix_loss
