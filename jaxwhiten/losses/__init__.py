"""Training objectives: pure functions from sentence vectors (and labels) to a scalar loss, safe under `jax.jit`.

The loss is that of the global batch. Under `jit` with the batch sharded over a mesh, in-batch negatives come from all
devices: XLA inserts the all-gather, and the loss does not depend on the number of devices.

`objective` turns a name and settings into a function `(columns, labels, head) -> loss`, as the training step calls it;
`OBJECTIVES` lists the names and what each requires of the data.
"""

from jaxwhiten.losses.contrastive import contrastive_tension, multiple_negatives_ranking, simcse
from jaxwhiten.losses.distillation import cosine_distance, listwise_distillation, margin_mse, vector_regression
from jaxwhiten.losses.objectives import (
    OBJECTIVES,
    Head,
    Loss,
    ObjectiveKind,
    check_data,
    init_head,
    matryoshka,
    objective,
    objective_kind,
)
from jaxwhiten.losses.supervised import (
    FEATURES,
    cosent,
    cosine_regression,
    parse_concatenation,
    softmax_classification,
    triplet,
)
from jaxwhiten.losses.vectors import cosine
from jaxwhiten.losses.whitened import group_whiten, inverse_sqrt, whitenedcse

__all__ = [
    "FEATURES",
    "OBJECTIVES",
    "Head",
    "Loss",
    "ObjectiveKind",
    "check_data",
    "contrastive_tension",
    "cosent",
    "cosine",
    "cosine_distance",
    "cosine_regression",
    "group_whiten",
    "init_head",
    "inverse_sqrt",
    "listwise_distillation",
    "margin_mse",
    "matryoshka",
    "multiple_negatives_ranking",
    "objective",
    "objective_kind",
    "parse_concatenation",
    "simcse",
    "softmax_classification",
    "triplet",
    "vector_regression",
    "whitenedcse",
]
