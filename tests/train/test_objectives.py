"""Losses of the experiments' objectives: values worked out by hand, finite gradients, and mesh independence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.training import objective_loss
from tests.test_losses import B, D, cosines, draw
from train.objectives import find_objective
from train.tension import contrastive_tension
from train.whitenedcse import group_whiten, inverse_sqrt


def draw_labels(kind):
    rng = np.random.default_rng(7)
    shape = {"vector": (B, 2, D), "margin": (B,)}.get(kind)
    return None if shape is None else jnp.asarray(rng.normal(size=shape), jnp.float32)


def distilled_in_numpy(name, u, v, teacher):
    first, second = teacher.astype(np.float64).swapaxes(0, 1)
    if name == "distil_pairs":
        return np.mean((np.diag(cosines(u, v)) - np.diag(cosines(first, second))) ** 2)
    total = 0.0
    for i in range(B):
        target, student = (np.exp(20 * np.delete(cosines(x, x)[i], i)) for x in (first, u))
        target, student = target / target.sum(), student / student.sum()
        total += np.sum(target * np.log(target / student)) / B
    return total


@pytest.mark.parametrize("name", ["distil_pairs", "distil_listwise"])
def test_distillation_is_its_formula_and_zero_for_the_teachers_own_vectors(name):
    data, labels = draw(2), draw_labels("vector")
    columns = [jnp.asarray(c) for c in data[: find_objective(name).columns[1]]]
    loss = objective_loss(find_objective(name))
    expected = distilled_in_numpy(name, *(c.astype(np.float64) for c in data), np.asarray(labels))
    assert float(loss(columns, labels, {})) == pytest.approx(expected, rel=1e-4)
    columns_of_teacher = [labels[:, i] for i in range(len(columns))]
    assert float(loss(columns_of_teacher, labels, {})) == pytest.approx(0.0, abs=1e-5)
    wider = jnp.pad(labels, ((0, 0), (0, 0), (0, 5)))
    assert float(loss(columns, wider, {})) == pytest.approx(float(loss(columns, labels, {})), rel=1e-5)


def test_group_whitening_is_zca_of_every_group():
    x = np.random.default_rng(0).normal(size=(64, 12)) @ np.random.default_rng(1).normal(size=(12, 12))
    whitened = np.asarray(group_whiten(jnp.asarray(x, jnp.float32), 4, epsilon=0.0), np.float64)
    for start in range(0, 12, 4):
        group, white = x[:, start : start + 4], whitened[:, start : start + 4]
        values, vectors = np.linalg.eigh(np.cov(group.T, bias=True))
        expected = (group - group.mean(0)) @ (vectors / np.sqrt(values)) @ vectors.T
        np.testing.assert_allclose(white, expected, atol=2e-4)
        np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(4), atol=1e-4)
    assert np.abs(np.cov(whitened.T)[:4, 4:]).max() > 0.1, "columns of different groups stay correlated"


@pytest.mark.parametrize("spread", [1e-3, 1.0])  # eigenvalues that nearly coincide, and others
def test_the_gradient_of_the_inverse_root_is_that_of_finite_differences(spread):
    rng = np.random.default_rng(0)
    root, weight, direction = rng.normal(size=(3, 5, 5))
    near = np.eye(5) + spread * root @ root.T
    direction = direction + direction.T

    def plain(sigma):
        values, vectors = np.linalg.eigh(sigma)
        return np.sum((vectors / np.sqrt(values)) @ vectors.T * weight)

    expected = (plain(near + 1e-5 * direction) - plain(near - 1e-5 * direction)) / 2e-5
    gradient = jax.grad(lambda s: jnp.sum(inverse_sqrt(s) * weight))
    assert float(jnp.sum(gradient(jnp.asarray(near, jnp.float32)) * direction)) == pytest.approx(expected, rel=1e-3)
    assert np.isfinite(gradient(jnp.eye(5))).all(), "equal eigenvalues"


@pytest.mark.parametrize("negatives", [1, B - 1])
def test_contrastive_tension_by_hand(negatives):
    first, second = draw(2)
    terms = []
    for i in range(B):
        for offset in range(negatives + 1):
            score = float(first[i] @ second[(i + offset) % B])
            terms.append(np.log1p(np.exp(-score if offset == 0 else score)))
    loss = contrastive_tension(jnp.asarray(first), jnp.asarray(second), negatives=negatives)
    assert float(loss) == pytest.approx(np.mean(terms), rel=1e-5)
