"""Training objectives: sentence vectors (and labels) in, one scalar out. Pure functions, safe under `jax.jit`.

The batch is the global one. Under `jit` with the batch sharded over a mesh, in-batch negatives therefore come from
every device: XLA inserts the gather, and one device or eight give the same loss.

`objective` turns a name and settings into one function `(columns, labels, head) -> loss`, the form the training step
calls; `OBJECTIVES` says what each name needs.
"""

from __future__ import annotations

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
"""What the softmax classifier may see of a pair; the concatenation names are lists of these."""

Head = Mapping[str, Array]
"""Parameters of an objective: `kernel [parts, d, classes]` and `bias [classes]` for softmax, empty otherwise."""

Loss = Callable[[Sequence[Float[Array, "b d"]], Array | None, Head], Scalar]
"""An objective ready for the training step: one vector array a column, the labels, the head's parameters."""


def normalize_rows(x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """Rows scaled to unit length; a zero row stays zero and its gradient finite."""
    squares = jnp.sum(x * x, axis=-1, keepdims=True)
    positive = squares > 0
    return jnp.where(positive, x * jax.lax.rsqrt(jnp.where(positive, squares, 1.0)), 0.0)


def cosine(u: Float[Array, "*b d"], v: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Cosine of row i of `u` with row i of `v`; 0 where either is zero."""
    return jnp.sum(normalize_rows(u) * normalize_rows(v), axis=-1)


def parse_concatenation(concatenation: str) -> tuple[str, ...]:
    """The features a concatenation names: `"(u,v,|u-v|)"` is `("u", "v", "|u-v|")`.

    Raises:
      InputError: A part is not one of `FEATURES`.
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
      u: Vectors of the first sentences.
      v: Vectors of the second sentences.
      labels: Class of each pair.
      kernel: The classifier's weights, one `[d, classes]` slab a feature, in the order of `concatenation`.
      bias: The classifier's bias.
      concatenation: The features the classifier sees, such as `"(|u-v|,u*v)"`.

    Returns:
      The mean loss.

    Raises:
      InputError: An unknown feature, or a kernel with another number of slabs.

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
    """Mean squared error between the cosine of a pair and its gold score, the latter scaled to 0-1.

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
    """Mean of max(‖a − p‖ − ‖a − n‖ + margin, 0), Euclidean.

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
    """Cross-entropy of each anchor choosing its own positive among every positive and hard negative of the batch.

    Args:
      anchor: Vectors of the anchors.
      positive: Row i belongs to anchor i; the other rows are its in-batch negatives.
      negatives: Hard negatives, `m` columns of them; every anchor sees all of them.
      scale: What cosines are multiplied with, the inverse of a temperature.

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
    """Unsupervised SimCSE: the same sentences encoded twice under different dropout are each other's positives.

    References:
      Gao, Yao and Chen, SimCSE (EMNLP 2021), section 3, equation 4.
    """
    return multiple_negatives_ranking(first, second, scale=1.0 / temperature)


def cosent(u: Float[Array, "b d"], v: Float[Array, "b d"], gold: Float[Array, " b"], scale: float = 20.0) -> Scalar:
    """log(1 + Σ exp(scale · (cos_j − cos_i))) over all i, j of the batch with gold_i > gold_j.

    Only the order of the gold scores counts, as it does for Spearman's correlation.

    References:
      Su, CoSENT (kexue.fm 8847), equation 5; Huang et al., CoSENT (IEEE/ACM TASLP 2024).
    """
    similarity = scale * cosine(u, v)
    differences = similarity[None, :] - similarity[:, None]
    wrong_order = jnp.where(gold[:, None] > gold[None, :], differences, -jnp.inf)
    return jax.nn.logsumexp(jnp.append(wrong_order.ravel(), 0.0))


def matryoshka(loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> Loss:
    """The weighted sum of `loss` over prefixes of the vectors, each prefix scaled to unit length.

    Works with every objective: a softmax classifier's kernel is cut to the same prefix.

    Args:
      loss: An objective as `objective` returns it.
      dims: Lengths of the prefixes.
      weights: Weight of each prefix; all 1 when None.

    Returns:
      A function of the same form.

    Raises:
      InputError: No prefix, a length below 1, or another number of weights. A prefix longer than the vectors is
        refused when the loss is called.

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
    """What an objective needs of the data.

    Attributes:
      columns: How many sentences a row has, least and most (None: any number).
      label: `"class"`, `"score"` or None.
      passes: How often each sentence goes through the encoder.
      settings: Names of the settings it takes.
    """

    columns: tuple[int, int | None]
    label: str | None
    passes: int = 1
    settings: tuple[str, ...] = ()


OBJECTIVES: dict[str, ObjectiveKind] = {
    "softmax": ObjectiveKind((2, 2), "class", settings=("concatenation",)),
    "cosine": ObjectiveKind((2, 2), "score"),
    "triplet": ObjectiveKind((3, 3), None, settings=("margin",)),
    "mnr": ObjectiveKind((2, None), None, settings=("scale",)),
    "simcse": ObjectiveKind((1, 1), None, passes=2, settings=("temperature",)),
    "cosent": ObjectiveKind((2, 2), "score", settings=("scale",)),
}


def objective_kind(name: str) -> ObjectiveKind:
    """What the named objective needs of the data.

    Raises:
      InputError: A mistyped name; the message gives the nearest.
    """
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def check_data(name: str, columns: Sequence[str], label: str | None) -> None:
    """Refuses rows an objective cannot use.

    Args:
      name: One of `OBJECTIVES`.
      columns: Names of the sentence columns.
      label: What the rows are labelled with: `"class"`, `"score"` or None.

    Raises:
      InputError: Too few or too many columns, or the wrong kind of label.
    """
    kind = objective_kind(name)
    least, most = kind.columns
    if len(columns) < least or (most is not None and len(columns) > most):
        wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise InputError(f"The objective {name!r} takes {wanted} sentences a row; the rows have {', '.join(columns)}.")
    if kind.label and label != kind.label:
        raise InputError(f"The objective {name!r} needs a {kind.label} for every row; the rows have {label or 'none'}.")


def objective(
    name: str,
    *,
    matryoshka_dims: Sequence[int] = (),
    matryoshka_weights: Sequence[float] | None = None,
    **settings: Any,
) -> Loss:
    """The named objective with its settings, in the form the training step calls.

    Args:
      name: One of `OBJECTIVES`.
      matryoshka_dims: Prefix lengths; empty for the whole vectors only.
      matryoshka_weights: Weights of the prefixes.
      **settings: Settings of that objective, such as `scale` or `concatenation`.

    Returns:
      A function `(columns, labels, head) -> loss`. SimCSE's two columns are the two passes.

    Raises:
      InputError: A mistyped name or setting.
    """
    known = objective_kind(name).settings
    for setting in settings:
        if setting not in known:
            raise unknown_name(f"setting of the objective {name!r}", setting, known)

    forms: dict[str, Callable[..., Array]] = {
        "softmax": lambda c, y, h: softmax_classification(c[0], c[1], y, h["kernel"], h["bias"], **settings),
        "cosine": lambda c, y, h: cosine_regression(c[0], c[1], y),
        "triplet": lambda c, y, h: triplet(c[0], c[1], c[2], **settings),
        "mnr": lambda c, y, h: multiple_negatives_ranking(
            c[0], c[1], jnp.stack(c[2:]) if len(c) > 2 else None, **settings
        ),
        "simcse": lambda c, y, h: simcse(c[0], c[1], **settings),
        "cosent": lambda c, y, h: cosent(c[0], c[1], y, **settings),
    }
    return matryoshka(forms[name], matryoshka_dims, matryoshka_weights) if matryoshka_dims else forms[name]


def init_head(
    name: str, key: Array, dimension: int, classes: int = 3, concatenation: str = "(u,v,|u-v|)", **settings: Any
) -> dict[str, Array]:
    """Fresh parameters of an objective: a softmax classifier, uniform in ±1/√inputs; nothing for the others.

    It takes the settings that `objective` takes; only the concatenation matters here.
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
