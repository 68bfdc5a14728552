"""Training losses: pure functions from sentence vectors (and labels) to a scalar, safe under `jax.jit`.

The loss is that of the global batch. Under `jit` with the batch sharded over a mesh, in-batch negatives come from all
devices: XLA inserts the all-gather, and the loss does not depend on the number of devices.

Keyword-only parameters are a loss's settings. `jaxwhiten.training.OBJECTIVES` names the losses and the data of each.
"""

from jaxwhiten.losses.contrastive import contrastive_tension, cosine, multiple_negatives_ranking, simcse
from jaxwhiten.losses.distillation import cosine_distance, listwise_distillation, margin_mse, vector_regression
from jaxwhiten.losses.matryoshka import Loss, matryoshka
from jaxwhiten.losses.supervised import cosent, cosine_regression, init_classifier, softmax_classification, triplet
from jaxwhiten.losses.whitened import group_whiten, inverse_sqrt, whitenedcse
