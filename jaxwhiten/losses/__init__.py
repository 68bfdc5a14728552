"""Training losses: pure functions from sentence vectors (and labels) to a scalar, safe under `jax.jit`.

Under `jit` with the batch sharded over a mesh, a loss is computed over the global batch: XLA inserts an all-gather, so
that in-batch negatives come from all devices and the loss does not depend on the number of devices.

Keyword-only parameters are settings of a loss. `jaxwhiten.training.OBJECTIVES` lists the losses and their data.
"""

from jaxwhiten.losses.contrastive import cosine, multiple_negatives_ranking, simcse
from jaxwhiten.losses.matryoshka import Loss, matryoshka
from jaxwhiten.losses.supervised import (
    cosent,
    cosine_distance,
    cosine_regression,
    init_classifier,
    softmax_classification,
    triplet,
    vector_regression,
)

__all__ = ["Loss", "cosent", "cosine", "cosine_distance", "cosine_regression", "init_classifier", "matryoshka"]
__all__ += ["multiple_negatives_ranking", "simcse", "softmax_classification", "triplet", "vector_regression"]
