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


@jax.custom_vjp
def inverse_sqrt(covariance: Float[Array, "*b g g"]) -> Float[Array, "*b g g"]:
    """Σ^(−1/2) of symmetric, positive definite matrices, with gradients that stay finite where eigenvalues coincide.

    The gradient of a symmetric G is V ((Vᵀ G V) ∘ K) Vᵀ, where K holds the divided differences of λ^(−1/2),
    −1 / (√λᵢ √λⱼ (√λᵢ + √λⱼ)); that of `jnp.linalg.eigh` divides by λᵢ − λⱼ.

    References:
      Bhatia, Matrix Analysis (1997), theorem V.3.3 (Daleckii and Krein).
    """
    return _inverse_sqrt(covariance)[0]


def _inverse_sqrt(covariance: Array) -> tuple[Array, tuple[Array, Array]]:
    values, vectors = jnp.linalg.eigh(covariance)
    roots = jnp.sqrt(jnp.maximum(values, jnp.finfo(values.dtype).tiny))
    return jnp.matmul(vectors / roots[..., None, :], vectors.mT, precision="highest"), (roots, vectors)


def _inverse_sqrt_backward(kept: tuple[Array, Array], change: Array) -> tuple[Array]:
    roots, vectors = kept
    rows, columns = roots[..., :, None], roots[..., None, :]
    turned = jnp.einsum("...ji,...jk,...kl->...il", vectors, (change + change.mT) / 2, vectors, precision="highest")
    turned = -turned / (rows * columns * (rows + columns))
    return (jnp.einsum("...ij,...jk,...lk->...il", vectors, turned, vectors, precision="highest"),)


inverse_sqrt.defvjp(_inverse_sqrt, _inverse_sqrt_backward)


def group_whiten(x: Float[Array, "n d"], group_size: int, epsilon: float = 1e-4) -> Float[Array, "n d"]:
    """Whitens each group of consecutive columns by the batch's own mean and covariance, as near to the input as can be.

    Args:
      x: Vectors.
      group_size: Columns per group; a divisor of d, less than n.
      epsilon: Share of a group's mean variance that is added to every variance.

    Returns:
      (x − μ) Σ^(−1/2) of each group (ZCA): the covariance of each group is the identity, but for `epsilon`.

    Raises:
      InputError: A group size that does not divide d, or no fewer columns in a group than rows.

    References:
      Zhuo et al., WhitenedCSE (ACL 2023), section 3.2.
    """
    rows, width = x.shape
    if group_size < 1 or width % group_size or group_size >= rows:
        raise InputError(
            f"group_size is {group_size}: it must divide the width {width} and be less than the {rows} rows of a batch."
        )
    groups = (x - jnp.mean(x, axis=0)).reshape(rows, -1, group_size).swapaxes(0, 1)
    covariance = jnp.matmul(groups.mT, groups, precision="highest") / rows
    mean_variance = jnp.trace(covariance, axis1=1, axis2=2)[:, None, None] / group_size
    ridge = epsilon * jnp.maximum(mean_variance, jnp.finfo(x.dtype).eps)
    whitened = jnp.matmul(groups, inverse_sqrt(covariance + ridge * jnp.eye(group_size)), precision="highest")
    return whitened.swapaxes(0, 1).reshape(rows, width)


def whitenedcse(
    first: Float[Array, "b d"],
    second: Float[Array, "b d"],
    temperature: float = 0.05,
    group_size: int = 64,
    shuffles: int = 3,
    key: Array | None = None,
) -> Scalar:
    """SimCSE after shuffled group whitening: every shuffle of the columns gives a further positive.

    Columns are shuffled, whitened in groups and shuffled back. The first pass under one shuffle and the second pass
    under each are a positive pair; the losses of all pairs are averaged.

    Args:
      first, second: Two encodings of each sentence with independent dropout.
      temperature: Divisor of the cosines.
      group_size: Columns that are whitened together.
      shuffles: Positives per sentence.
      key: Source of the shuffles; None leaves the columns in their order.

    Raises:
      InputError: As in `group_whiten`, or no shuffle.

    References:
      Zhuo et al., WhitenedCSE (ACL 2023), sections 3.2 and 3.3.
    """
    if shuffles < 1:
        raise InputError(f"shuffles is {shuffles}; at least 1 is needed.")

    def shuffled(x: Array, number: int) -> Array:
        if key is None:
            return group_whiten(x, group_size)
        order = jax.random.permutation(jax.random.fold_in(key, number), x.shape[1])
        return group_whiten(x[:, order], group_size)[:, jnp.argsort(order)]

    anchor = shuffled(first, 0)
    return jnp.mean(jnp.stack([simcse(anchor, shuffled(second, n), temperature) for n in range(shuffles)]))


def contrastive_tension(first: Float[Array, "b d"], second: Float[Array, "b d"], negatives: int = 7) -> Scalar:
    """Binary cross-entropy of dot products of two encoders: 1 for the same sentence, 0 for others of the batch.

    Args:
      first, second: Vectors of the same sentences by two encoders.
      negatives: Pairs of different sentences for each pair of equal ones: sentence i of the first encoder with
        i + 1, i + 2, ... of the second, in a batch whose order is random.

    Raises:
      InputError: Fewer than 1 negative, or as many as the batch has sentences.

    References:
      Carlsson et al., Semantic Re-tuning with Contrastive Tension (ICLR 2021), section 3, equation 1.
    """
    rows = len(first)
    if not 1 <= negatives < rows:
        raise InputError(f"negatives is {negatives}; a batch of {rows} sentences has 1 to {rows - 1} for each.")
    scores = jnp.matmul(first, second.T, precision="highest")
    ahead = (jnp.arange(rows)[None, :] - jnp.arange(rows)[:, None]) % rows
    losses = jax.nn.softplus(jnp.where(ahead == 0, -scores, scores))
    return jnp.sum(jnp.where(ahead <= negatives, losses, 0.0)) / (rows * (negatives + 1))


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


def vector_regression(u: Float[Array, "b d"], teacher: Float[Array, "b d"]) -> Scalar:
    """Mean squared error between a student's vectors and its teacher's, over rows and components.

    References:
      Reimers and Gurevych, Making Monolingual Sentence Embeddings Multilingual (EMNLP 2020), section 3, equation 1.
    """
    return jnp.mean((u - teacher) ** 2)


def cosine_distance(u: Float[Array, "b d"], teacher: Float[Array, "b d"]) -> Scalar:
    """Mean of 1 − cos between a student's vectors and its teacher's: only their directions count.

    References:
      Zhang et al., Jasper and Stella: distillation of SOTA embedding models (2024), the cosine loss.
    """
    return jnp.mean(1 - cosine(u, teacher))


def listwise_distillation(u: Float[Array, "b d"], teacher: Float[Array, "b e"], scale: float = 20.0) -> Scalar:
    """Kullback-Leibler divergence of whom a student finds similar from whom its teacher does, over the batch.

    For each sentence, both sides' softmax runs over its scaled cosines with all other sentences.

    Args:
      u, teacher: Vectors of the student and of the teacher; their widths may differ.
      scale: Factor on the cosines, an inverse temperature.

    Returns:
      The mean of KL(teacher ‖ student) over the sentences.

    References:
      Ren et al., RocketQAv2 (EMNLP 2021), listwise distillation; Cao et al., Learning to Rank: From Pairwise Approach
      to Listwise Approach (ICML 2007), section 4.2, for the distribution.
    """

    def log_shares(x: Array) -> Array:
        x = normalize_rows(x)
        cosines = jnp.matmul(x, x.T, precision="highest")
        itself = jnp.eye(len(x), dtype=bool)
        return jax.nn.log_softmax(jnp.where(itself, jnp.finfo(x.dtype).min, scale * cosines), axis=-1)

    wanted, found = log_shares(teacher), log_shares(u)
    return jnp.mean(jnp.sum(jnp.exp(wanted) * (wanted - found), axis=-1))


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
      label: `"class"`, `"score"`, `"vector"` (a teacher's, [b, columns, e], which no data holds) or None.
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


def _ranking(columns: Sequence[Array], labels: Array | None, head: Head, **settings: Any) -> Scalar:
    del labels, head
    anchor, positive, *negatives = columns
    return multiple_negatives_ranking(anchor, positive, jnp.stack(negatives) if negatives else None, **settings)


def _prefix(teacher: Array, columns: Sequence[Array]) -> Array:
    """The first sentences' vectors of a teacher, cut to the prefix that `matryoshka` trains."""
    return teacher[:, 0, : columns[0].shape[-1]]


def _planned(columns: Sequence[Array], labels: Array | None, head: Head, **settings: Any) -> Scalar:
    raise InputError("This objective trains more than an encoder: plan it with jaxwhiten.training.make_plan.")


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
    "whitenedcse": ObjectiveKind(
        lambda c, y, h, **settings: whitenedcse(c[0], c[1], key=h.get("key"), **settings),
        (1, 1),
        passes=2,
        settings=("temperature", "group_size", "shuffles"),
    ),
    "simcse_whitened": ObjectiveKind(_planned, (1, 1), settings=("temperature", "fit_rows")),
    "ct": ObjectiveKind(
        lambda c, y, h, **settings: contrastive_tension(c[0], c[1], **settings), (1, 1), settings=("negatives",)
    ),
    "tsdae": ObjectiveKind(_planned, (1, 1), settings=("deletion", "layers")),
    "cosent": ObjectiveKind(
        lambda c, y, h, **settings: cosent(c[0], c[1], y, **settings), (2, 2), "score", settings=("scale",)
    ),
    "distil_mse": ObjectiveKind(lambda c, y, h: vector_regression(c[0], _prefix(y, c)), (1, 1), "vector"),
    "distil_cosine": ObjectiveKind(lambda c, y, h: cosine_distance(c[0], _prefix(y, c)), (1, 1), "vector"),
    # DSE: the teacher's score of each pair, regressed (Barkan et al., AAAI 2020, section 3).
    "distil_pairs": ObjectiveKind(
        lambda c, y, h: cosine_regression(c[0], c[1], cosine(y[:, 0], y[:, 1])), (2, 2), "vector"
    ),
    "distil_listwise": ObjectiveKind(
        lambda c, y, h, **settings: listwise_distillation(c[0], y[:, 0], **settings),
        (1, 1),
        "vector",
        settings=("scale",),
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
