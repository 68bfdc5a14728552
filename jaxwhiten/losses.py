"""Training losses: pure functions from sentence vectors (and labels) to a scalar, safe under `jax.jit`.

Under `jit` with the batch sharded over a mesh, a loss is computed over the global batch: XLA inserts an all-gather, so
that in-batch negatives come from all devices and the loss does not depend on the number of devices.

Keyword-only parameters are settings of a loss. `jaxwhiten.training.OBJECTIVES` lists the losses and their data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.types import Array, Float, Integer, Scalar

__all__ = ["Loss", "cosent", "cosine", "cosine_distance", "cosine_regression", "init_classifier", "matryoshka"]
__all__ += ["multiple_negatives_ranking", "simcse", "softmax_classification", "triplet", "vector_regression"]

Head = Mapping[str, Array]
"""Parameters of a loss: `kernel` and `bias` of the softmax classifier, empty otherwise."""

Loss = Callable[[Sequence[Float[Array, "b d"]], Array | None, Head], Scalar]
"""A loss for the training step, called with one array of vectors per text column, the labels and the parameters."""

FEATURES: dict[str, Callable[[Array, Array], Array]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: jnp.abs(u - v),
    "u*v": lambda u, v: u * v,
}
"""Features of a pair for the softmax classifier; a concatenation is a list of their names."""


def cosine(u: Float[Array, "*b d"], v: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Row-wise cosine similarity; 0, with a finite gradient, if either row is zero.

    >>> cosine(jnp.eye(2), jnp.array([[2.0, 0.0], [1.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    return jnp.sum(normalize_on_device(u) * normalize_on_device(v), axis=-1)


def multiple_negatives_ranking(
    anchor: Float[Array, "b d"], positive: Float[Array, "b d"], *negatives: Float[Array, "b d"], scale: float = 20.0
) -> Scalar:
    """Cross-entropy of identifying each anchor's positive among all positives and hard negatives of the batch.

    Every row of `negatives` is a candidate for every anchor. `scale` is an inverse temperature.

    >>> u = jnp.eye(4)
    >>> bool(multiple_negatives_ranking(u, u) < 1 < multiple_negatives_ranking(u, u[::-1]))
    True

    References:
      Henderson et al., Efficient Natural Language Response Suggestion for Smart Reply (2017), section 4.4; with
      scaled cosines as in sentence-transformers' `MultipleNegativesRankingLoss`.
    """
    candidates = jnp.concatenate([positive, *negatives])
    scores = scale * jnp.matmul(normalize_on_device(anchor), normalize_on_device(candidates).T, precision="highest")
    log_probability = jax.nn.log_softmax(scores, axis=-1)
    return -jnp.mean(jnp.diagonal(log_probability))


def simcse(first: Float[Array, "b d"], second: Float[Array, "b d"], *, temperature: float = 0.05) -> Scalar:
    """Unsupervised SimCSE: two encodings of a sentence with independent dropout are a positive pair.

    >>> bool(simcse(jnp.eye(4), jnp.eye(4)) < 1e-6)
    True

    References:
      Gao, Yao and Chen, SimCSE (EMNLP 2021), section 3, equation 4.
    """
    return multiple_negatives_ranking(first, second, scale=1.0 / temperature)


def parse_concatenation(concatenation: str) -> tuple[str, ...]:
    """Parses a concatenation of names in `FEATURES`: `"(u,v,|u-v|)"` becomes `("u", "v", "|u-v|")`."""
    parts = tuple(part.strip() for part in concatenation.strip().removeprefix("(").removesuffix(")").split(","))
    for part in parts:
        check_name("feature in the concatenation", part, FEATURES)
    return parts


def init_classifier(
    key: Array, dimension: int, classes: int, *, concatenation: str = "(u,v,|u-v|)"
) -> dict[str, Array]:
    """The initial `kernel` and `bias` of `softmax_classification`, uniform in ±1/√inputs.

    >>> init_classifier(jax.random.key(0), dimension=4, classes=3)["kernel"].shape
    (3, 4, 3)
    """
    parts = len(parse_concatenation(concatenation))
    bound = (parts * dimension) ** -0.5
    kernel_key, bias_key = jax.random.split(key)
    return {
        "kernel": jax.random.uniform(kernel_key, (parts, dimension, classes), minval=-bound, maxval=bound),
        "bias": jax.random.uniform(bias_key, (classes,), minval=-bound, maxval=bound),
    }


def softmax_classification(
    u: Float[Array, "b d"],
    v: Float[Array, "b d"],
    labels: Integer[Array, " b"],
    kernel: Float[Array, "parts d classes"],
    bias: Float[Array, " classes"],
    *,
    concatenation: str = "(u,v,|u-v|)",
) -> Scalar:
    """Mean cross-entropy of a linear classifier over features of the pair.

    The kernel holds one [d, classes] slab per feature, in the order of `concatenation`.

    >>> head = init_classifier(jax.random.key(0), dimension=4, classes=3)
    >>> loss = softmax_classification(jnp.eye(4), jnp.eye(4), jnp.array([0, 1, 2, 0]), **head)
    >>> loss.shape
    ()

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

    >>> float(cosine_regression(jnp.eye(2), jnp.eye(2), jnp.array([1.0, 0.0])))
    0.5

    References:
      Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3, regression objective.
    """
    return jnp.mean((cosine(u, v) - gold) ** 2)


def triplet(
    anchor: Float[Array, "b d"], positive: Float[Array, "b d"], negative: Float[Array, "b d"], *, margin: float = 1.0
) -> Scalar:
    """Mean of max(‖a − p‖ − ‖a − n‖ + margin, 0) with Euclidean distances.

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


def cosent(u: Float[Array, "b d"], v: Float[Array, "b d"], gold: Float[Array, " b"], *, scale: float = 20.0) -> Scalar:
    """log(1 + Σ exp(scale · (cos_j − cos_i))) over all i, j of the batch with gold_i > gold_j.

    The loss depends only on the order of the gold scores, like Spearman's correlation.

    >>> u, v, gold = jnp.eye(2), jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.array([1.0, 0.0])
    >>> bool(cosent(u, v, gold) < 1 < cosent(u, v, 1 - gold))
    True

    References:
      Su, CoSENT (kexue.fm 8847), equation 5; Huang et al., CoSENT (IEEE/ACM TASLP 2024).
    """
    similarity = scale * cosine(u, v)
    differences = similarity[None, :] - similarity[:, None]
    wrong_order = jnp.where(gold[:, None] > gold[None, :], differences, -jnp.inf)
    return jax.nn.logsumexp(jnp.append(wrong_order.ravel(), 0.0))


def vector_regression(u: Float[Array, "b d"], teacher: Float[Array, "b d"]) -> Scalar:
    """Mean squared error between a student's vectors and its teacher's, over rows and components.

    >>> float(vector_regression(jnp.eye(2), jnp.zeros((2, 2))))
    0.5

    References:
      Reimers and Gurevych, Making Monolingual Sentence Embeddings Multilingual (EMNLP 2020), section 3, equation 1.
    """
    return jnp.mean((u - teacher) ** 2)


def cosine_distance(u: Float[Array, "b d"], teacher: Float[Array, "b d"]) -> Scalar:
    """Mean of 1 − cos between a student's vectors and its teacher's, which compares only directions.

    >>> float(cosine_distance(jnp.eye(2), 3 * jnp.eye(2)))
    0.0

    References:
      Zhang et al., Jasper and Stella: distillation of SOTA embedding models (2024), the cosine loss.
    """
    return jnp.mean(1 - cosine(u, teacher))


def matryoshka(loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> Loss:
    """The weighted sum of `loss` over prefixes of the vectors, each prefix scaled to unit length.

    Works with every loss; the kernel of a softmax classifier is truncated too. Without `weights` all prefixes have
    weight 1.

    >>> loss = matryoshka(lambda columns, labels, head: multiple_negatives_ranking(*columns), dims=(2, 4))
    >>> loss([jnp.eye(4), jnp.eye(4)], None, {}).shape
    ()

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
