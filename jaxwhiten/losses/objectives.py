"""Objectives by name: what the training step calls, and what each requires of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.errors import InputError, unknown_name
from jaxwhiten.losses.contrastive import contrastive_tension, multiple_negatives_ranking, simcse
from jaxwhiten.losses.distillation import cosine_distance, listwise_distillation, margin_mse, vector_regression
from jaxwhiten.losses.supervised import cosent, cosine_regression, parse_concatenation, softmax_classification, triplet
from jaxwhiten.losses.vectors import cosine
from jaxwhiten.losses.whitened import whitenedcse

Head = Mapping[str, Array]
"""Parameters of an objective: `kernel [parts, d, classes]` and `bias [classes]` for softmax, empty otherwise."""


Loss = Callable[[Sequence[Float[Array, "b d"]], Array | None, Head], Scalar]
"""An objective for the training step: one array of vectors per column, the labels, the head's parameters."""


def matryoshka(loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> Loss:
    """The weighted sum of `loss` over prefixes of the vectors, each prefix scaled to unit length.

    Works with every objective; the kernel of a softmax classifier is truncated to the same prefix.

    Args:
      loss: An objective as `objective` returns it.
      dims: Lengths of the prefixes.
      weights: Weight of each prefix; all 1 when None.

    Raises:
      InputError: No prefix, a length below 1, or a different number of weights. When called, the loss raises it for a
        prefix longer than the vectors.

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


@dataclass(frozen=True)
class ObjectiveKind:
    """An objective and what it requires of the data.

    Attributes:
      loss: The objective as `(*columns, labels, **head, **settings) -> loss`, without labels where it needs none.
      columns: Minimum and maximum number of sentences per row (None: no maximum).
      label: `"class"`, `"score"`, None, or what no data holds but a teacher gives: `"vector"` ([b, columns, e]) or
        `"margin"` ([b]).
      passes: How often each sentence is encoded.
      settings: Names of the settings it accepts.
    """

    loss: Callable[..., Scalar]
    columns: tuple[int, int | None]
    label: str | None = None
    passes: int = 1
    settings: tuple[str, ...] = ()

    @property
    def labelled(self) -> bool:
        """Whether the rows of the data carry its label."""
        return self.label in ("class", "score")


def _ranking(anchor: Array, positive: Array, *negatives: Array, **settings: Any) -> Scalar:
    return multiple_negatives_ranking(anchor, positive, jnp.stack(negatives) if negatives else None, **settings)


def _first_of(loss: Callable[[Array, Array], Scalar]) -> Callable[[Array, Array], Scalar]:
    """A loss against the teacher's vectors of the first sentences, cut to the prefix that `matryoshka` trains."""
    return lambda u, teacher: loss(u, teacher[:, 0, : u.shape[-1]])


def _planned(*_: Array, **settings: Any) -> Scalar:
    raise InputError("This objective trains more than an encoder: plan it with jaxwhiten.training.make_plan.")


ONE, TWO, THREE = (1, 1), (2, 2), (3, 3)
OBJECTIVES: dict[str, ObjectiveKind] = {
    "softmax": ObjectiveKind(softmax_classification, TWO, "class", settings=("concatenation",)),
    "cosine": ObjectiveKind(cosine_regression, TWO, "score"),
    "triplet": ObjectiveKind(triplet, THREE, settings=("margin",)),
    "mnr": ObjectiveKind(_ranking, (2, None), settings=("scale",)),
    "simcse": ObjectiveKind(simcse, ONE, passes=2, settings=("temperature",)),
    "whitenedcse": ObjectiveKind(whitenedcse, ONE, passes=2, settings=("temperature", "group_size", "shuffles")),
    "simcse_whitened": ObjectiveKind(_planned, ONE, settings=("temperature", "fit_rows")),
    "ct": ObjectiveKind(contrastive_tension, ONE, settings=("negatives",)),
    "tsdae": ObjectiveKind(_planned, ONE, settings=("deletion", "layers")),
    "cosent": ObjectiveKind(cosent, TWO, "score", settings=("scale",)),
    "distil_mse": ObjectiveKind(_first_of(vector_regression), ONE, "vector"),
    "distil_cosine": ObjectiveKind(_first_of(cosine_distance), ONE, "vector"),
    # DSE: the teacher's score of each pair, regressed (Barkan et al., AAAI 2020, section 3).
    "distil_pairs": ObjectiveKind(lambda u, v, y: cosine_regression(u, v, cosine(y[:, 0], y[:, 1])), TWO, "vector"),
    "distil_listwise": ObjectiveKind(
        lambda u, y, **settings: listwise_distillation(u, y[:, 0], **settings), ONE, "vector", settings=("scale",)
    ),
    "margin_mse": ObjectiveKind(margin_mse, THREE, "margin", settings=("scale",)),
}


def objective_kind(name: str) -> ObjectiveKind:
    """Looks up an objective by name.

    Raises:
      InputError: An unknown name; the message suggests the nearest.
    """
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def check_data(name: str, columns: Sequence[str], label: str | None) -> None:
    """Checks that an objective can be trained on rows of this form.

    Args:
      name: One of `OBJECTIVES`.
      columns: Names of the sentence columns.
      label: The kind of label of the rows: `"class"`, `"score"` or None.

    Raises:
      InputError: Too few or too many columns, or the wrong kind of label.
    """
    kind = objective_kind(name)
    least, most = kind.columns
    if len(columns) < least or (most is not None and len(columns) > most):
        wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise InputError(
            f"The objective {name!r} takes {wanted} sentences per row; the rows have {', '.join(columns)}."
        )
    if kind.labelled and label != kind.label:
        raise InputError(f"The objective {name!r} needs a {kind.label} for every row; the rows have {label or 'none'}.")


def objective(
    name: str,
    *,
    matryoshka_dims: Sequence[int] = (),
    matryoshka_weights: Sequence[float] | None = None,
    **settings: Any,
) -> Loss:
    """The named objective with its settings, as the training step calls it.

    Args:
      name: One of `OBJECTIVES`.
      matryoshka_dims, matryoshka_weights: As in `matryoshka`; no prefixes for the full vectors only.
      **settings: Settings of the objective, such as `scale` or `concatenation`.

    Returns:
      A function `(columns, labels, head) -> loss`. For SimCSE the two columns are the two passes.

    Raises:
      InputError: An unknown name or setting.
    """
    kind = objective_kind(name)
    for setting in settings:
        if setting not in kind.settings:
            raise unknown_name(f"setting of the objective {name!r}", setting, kind.settings)

    def loss(columns: Sequence[Array], labels: Array | None, head: Head) -> Scalar:
        return kind.loss(*columns, *([] if kind.label is None else [labels]), **head, **settings)

    return matryoshka(loss, matryoshka_dims, matryoshka_weights) if matryoshka_dims else loss


def init_head(
    name: str, key: Array, dimension: int, classes: int = 3, concatenation: str = "(u,v,|u-v|)", **settings: Any
) -> dict[str, Array]:
    """Initial parameters of an objective: a softmax classifier, uniform in ±1/√inputs, or nothing for the others.

    Accepts the settings of `objective`, of which only the concatenation is used.
    """
    del settings
    if name != "softmax":
        return {}
    parts = len(parse_concatenation(concatenation))
    bound = (parts * dimension) ** -0.5
    kernel_key, bias_key = jax.random.split(key)
    return {
        "kernel": jax.random.uniform(kernel_key, (parts, dimension, classes), minval=-bound, maxval=bound),
        "bias": jax.random.uniform(bias_key, (classes,), minval=-bound, maxval=bound),
    }
