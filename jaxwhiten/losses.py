"""Training objectives: pure functions from sentence vectors (and labels) to a scalar loss, safe under `jax.jit`.

The loss is that of the global batch. Under `jit` with the batch sharded over a mesh, in-batch negatives come from all
devices: XLA inserts the all-gather, and the loss does not depend on the number of devices.

`objective` turns a name and settings into a function `(columns, labels, head) -> loss`, as the training step calls it;
`OBJECTIVES` lists the names and what each requires of the data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Scalar

from jaxwhiten.errors import InputError, unknown_name

FEATURES: dict[str, Callable[[Array, Array], Array]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: jnp.abs(u - v),
    "u*v": lambda u, v: u * v,
}
"""Features of a pair that the softmax classifier may use; a concatenation is a list of their names."""

Head = Mapping[str, Array]
"""Parameters of an objective: `kernel [parts, d, classes]` and `bias [classes]` for softmax, empty otherwise."""

Loss = Callable[[Sequence[Float[Array, "b d"]], Array | None, Head], Scalar]
"""An objective for the training step: one array of vectors per column, the labels, the head's parameters."""


def normalize_rows(x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """Scales rows to unit length; zero rows stay zero, with finite gradients."""
    squares = jnp.sum(x * x, axis=-1, keepdims=True)
    positive = squares > 0
    return jnp.where(positive, x * jax.lax.rsqrt(jnp.where(positive, squares, 1.0)), 0.0)


def cosine(u: Float[Array, "*b d"], v: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Row-wise cosine similarity; 0 where either row is zero."""
    return jnp.sum(normalize_rows(u) * normalize_rows(v), axis=-1)


def parse_concatenation(concatenation: str) -> tuple[str, ...]:
    """Parses a concatenation: `"(u,v,|u-v|)"` becomes `("u", "v", "|u-v|")`.

    Raises:
      InputError: A feature is not one of `FEATURES`.
    """
    parts = tuple(part.strip() for part in concatenation.strip().removeprefix("(").removesuffix(")").split(","))
    for part in parts:
        if part not in FEATURES:
            raise unknown_name("feature in the concatenation", part, FEATURES)
    return parts


def softmax_classification(
    u: Float[Array, "b d"],
    v: Float[Array, "b d"],
    labels: Integer[Array, " b"],
    kernel: Float[Array, "parts d classes"],
    bias: Float[Array, " classes"],
    concatenation: str = "(u,v,|u-v|)",
) -> Scalar:
    """Mean cross-entropy of a linear classifier over features of the pair.

    Args:
      u, v: Vectors of the first and second sentences.
      labels: Class of each pair.
      kernel: The classifier's weights, one `[d, classes]` slab per feature, in the order of `concatenation`.
      bias: The classifier's bias.
      concatenation: The classifier's features, such as `"(|u-v|,u*v)"`.

    Returns:
      The mean loss.

    Raises:
      InputError: An unknown feature, or a kernel with a different number of slabs.

    References:
      Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3, classification objective; table 6 for the
      concatenations.
    """
    parts = parse_concatenation(concatenation)
    if kernel.shape[0] != len(parts):
        raise InputError(f"kernel has {kernel.shape[0]} slabs for the {len(parts)} features {concatenation!r}.")
    features = jnp.stack([FEATURES[part](u, v) for part in parts])
    logits = jnp.einsum("pbd,pdc->bc", features, kernel, precision="highest") + bias
    log_probability = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_probability, labels[:, None], axis=-1))


def cosine_regression(u: Float[Array, "b d"], v: Float[Array, "b d"], gold: Float[Array, " b"]) -> Scalar:
    """Mean squared error between the cosine of each pair and its gold score in [0, 1].

    >>> import jax.numpy as jnp
    >>> float(cosine_regression(jnp.eye(2), jnp.eye(2), jnp.array([1.0, 0.0])))
    0.5

    References:
      Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3, regression objective.
    """
    return jnp.mean((cosine(u, v) - gold) ** 2)


def triplet(
    anchor: Float[Array, "b d"], positive: Float[Array, "b d"], negative: Float[Array, "b d"], margin: float = 1.0
) -> Scalar:
    """Mean of max(‖a − p‖ − ‖a − n‖ + margin, 0) with Euclidean distances.

    >>> import jax.numpy as jnp
    >>> a, p, n = jnp.array([[0.0, 0.0]]), jnp.array([[3.0, 4.0]]), jnp.array([[0.0, 2.0]])
    >>> float(triplet(a, p, n))
    4.0

    References:
      Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3, triplet objective.
    """

    def distance(x: Array, y: Array) -> Array:
        squares = jnp.sum((x - y) ** 2, axis=-1)
        return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)

    return jnp.mean(jax.nn.relu(distance(anchor, positive) - distance(anchor, negative) + margin))


def multiple_negatives_ranking(
    anchor: Float[Array, "b d"],
    positive: Float[Array, "b d"],
    negatives: Float[Array, "m b d"] | None = None,
    scale: float = 20.0,
) -> Scalar:
    """Cross-entropy of identifying each anchor's positive among all positives and hard negatives of the batch.

    Args:
      anchor: Vectors of the anchors.
      positive: Row i is the positive of anchor i; the other rows are its in-batch negatives.
      negatives: Hard negatives, `m` columns; each is a candidate for every anchor.
      scale: Factor on the cosines, an inverse temperature.

    Returns:
      The mean loss.

    References:
      Henderson et al., Efficient Natural Language Response Suggestion for Smart Reply (2017), section 4.4; with
      scaled cosines as in sentence-transformers' `MultipleNegativesRankingLoss`.
    """
    candidates = positive
    if negatives is not None:
        candidates = jnp.concatenate([positive, negatives.reshape(-1, negatives.shape[-1])])
    scores = scale * jnp.matmul(normalize_rows(anchor), normalize_rows(candidates).T, precision="highest")
    log_probability = jax.nn.log_softmax(scores, axis=-1)
    return -jnp.mean(jnp.diagonal(log_probability))


def simcse(first: Float[Array, "b d"], second: Float[Array, "b d"], temperature: float = 0.05) -> Scalar:
    """Unsupervised SimCSE: two encodings of a sentence with independent dropout are a positive pair.

    References:
      Gao, Yao and Chen, SimCSE (EMNLP 2021), section 3, equation 4.
    """
    return multiple_negatives_ranking(first, second, scale=1.0 / temperature)


def cosent(u: Float[Array, "b d"], v: Float[Array, "b d"], gold: Float[Array, " b"], scale: float = 20.0) -> Scalar:
    """log(1 + Σ exp(scale · (cos_j − cos_i))) over all i, j of the batch with gold_i > gold_j.

    The loss depends only on the order of the gold scores, like Spearman's correlation.

    References:
      Su, CoSENT (kexue.fm 8847), equation 5; Huang et al., CoSENT (IEEE/ACM TASLP 2024).
    """
    similarity = scale * cosine(u, v)
    differences = similarity[None, :] - similarity[:, None]
    wrong_order = jnp.where(gold[:, None] > gold[None, :], differences, -jnp.inf)
    return jax.nn.logsumexp(jnp.append(wrong_order.ravel(), 0.0))


def margin_mse(
    query: Float[Array, "b d"],
    positive: Float[Array, "b d"],
    negative: Float[Array, "b d"],
    margin: Float[Array, " b"],
    scale: float = 20.0,
) -> Scalar:
    """Mean squared error between scale · (cos(q, p) − cos(q, n)) and a cross-encoder's margin.

    The paper takes dot products; scaled cosines are what vectors of unit length are searched by.

    >>> import jax.numpy as jnp
    >>> float(margin_mse(jnp.eye(2)[:1], jnp.eye(2)[:1], jnp.eye(2)[1:], jnp.array([17.0])))
    9.0

    References:
      Wang et al., GPL: Generative Pseudo Labeling (NAACL 2022), section 3, equation 2.
    """
    return jnp.mean((scale * (cosine(query, positive) - cosine(query, negative)) - margin) ** 2)


def matryoshka(loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> Loss:
    """The weighted sum of `loss` over prefixes of the vectors, each prefix scaled to unit length.

    Works with every objective; the kernel of a softmax classifier is truncated to the same prefix.

    Args:
      loss: An objective as `objective` returns it.
      dims: Lengths of the prefixes.
      weights: Weight of each prefix; all 1 when None.

    Returns:
      An objective with the same signature.

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
            total += weight * loss([normalize_rows(column[:, :k]) for column in columns], labels, cut)
        return total

    return prefix_loss


@dataclass(frozen=True)
class ObjectiveKind:
    """An objective and what it requires of the data.

    Attributes:
      loss: The objective as `(columns, labels, head, **settings) -> loss`.
      columns: Minimum and maximum number of sentences per row (None: no maximum).
      label: `"class"`, `"score"` or None.
      passes: How often each sentence is encoded.
      settings: Names of the settings it accepts.
    """

    loss: Callable[..., Scalar]
    columns: tuple[int, int | None]
    label: str | None = None
    passes: int = 1
    settings: tuple[str, ...] = ()


def _ranking(columns: Sequence[Array], labels: Array | None, head: Head, **settings: Any) -> Scalar:
    del labels, head
    anchor, positive, *negatives = columns
    return multiple_negatives_ranking(anchor, positive, jnp.stack(negatives) if negatives else None, **settings)


OBJECTIVES: dict[str, ObjectiveKind] = {
    "softmax": ObjectiveKind(
        lambda c, y, h, **settings: softmax_classification(c[0], c[1], y, h["kernel"], h["bias"], **settings),
        (2, 2),
        "class",
        settings=("concatenation",),
    ),
    "cosine": ObjectiveKind(lambda c, y, h: cosine_regression(c[0], c[1], y), (2, 2), "score"),
    "triplet": ObjectiveKind(lambda c, y, h, **settings: triplet(*c, **settings), (3, 3), settings=("margin",)),
    "mnr": ObjectiveKind(_ranking, (2, None), settings=("scale",)),
    "simcse": ObjectiveKind(
        lambda c, y, h, **settings: simcse(c[0], c[1], **settings), (1, 1), passes=2, settings=("temperature",)
    ),
    "cosent": ObjectiveKind(
        lambda c, y, h, **settings: cosent(c[0], c[1], y, **settings), (2, 2), "score", settings=("scale",)
    ),
    "margin_mse": ObjectiveKind(
        lambda c, y, h, **settings: margin_mse(c[0], c[1], c[2], y, **settings), (3, 3), settings=("scale",)
    ),
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
    if kind.label and label != kind.label:
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
    loss = functools.partial(kind.loss, **settings)
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
