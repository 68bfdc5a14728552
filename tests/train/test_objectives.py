"""Losses of the experiments' objectives: values worked out by hand, finite gradients, and mesh independence."""

import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder, losses
from jaxwhiten.datasets import Pairs
from jaxwhiten.errors import InputError
from jaxwhiten.training import TrainingOptions, objective_loss
from tests.test_losses import B, D, cosines, draw, on_eight_devices_as_on_one
from tests.tiny import SENTENCES
from tests.training.test_settings import NONSENSE, numeric
from train import distillation
from train.common import sts_score
from train.objectives import OWN, find_objective, own_settings
from train.tension import contrastive_tension
from train.whitenedcse import group_whiten, inverse_sqrt, whitenedcse

NAMES = [objective.name for objective in OWN if objective.name != "tsdae"]  # whose loss is on tokens
SETTINGS = {"whitenedcse": {"group_size": 4}}  # where the defaults are for wider vectors and larger batches


def draw_labels(kind):
    rng = np.random.default_rng(7)
    shape = {"vector": (B, 2, D), "margin": (B,)}.get(kind)
    return None if shape is None else jnp.asarray(rng.normal(size=shape), jnp.float32)


def columns_of(name):
    objective = find_objective(name)
    return draw(max(objective.passes, objective.columns[0], 2 if name == "ct" else 1))


def test_docstring_examples():
    assert doctest.testmod(distillation, raise_on_error=True).attempted


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


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_finite_where_vectors_are_zero_or_equal(name):
    same = np.ones((B, D), np.float32)
    same[0] = 0.0
    loss = objective_loss(find_objective(name), **SETTINGS.get(name, {}))
    columns, labels = [jnp.asarray(same)] * len(columns_of(name)), draw_labels(find_objective(name).label)
    value, gradients = jax.value_and_grad(lambda c: loss(c, labels, {}))(columns)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.devices
def test_eight_devices_give_the_loss_of_one(name):
    columns, labels = columns_of(name), draw_labels(find_objective(name).label)
    loss = objective_loss(find_objective(name), **SETTINGS.get(name, {}))
    on_eight_devices_as_on_one(loss, columns, labels, {})


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


def test_whitenedcse_averages_simcse_over_shuffled_groups():
    first, second = (jnp.asarray(x) for x in draw(2))
    plain = losses.simcse(group_whiten(first, 4), group_whiten(second, 4))
    assert float(whitenedcse(first, second, group_size=4)) == pytest.approx(float(plain), rel=1e-5)
    keys = [float(whitenedcse(first, second, group_size=4, key=jax.random.key(n))) for n in range(3)]
    assert len({round(value, 4) for value in keys}) == 3, "each key groups other columns"
    whole = [whitenedcse(first[:, :4], second[:, :4], group_size=4, key=k) for k in (None, jax.random.key(0))]
    assert float(whole[0]) == pytest.approx(float(whole[1]), abs=1e-3), "a single group has no order"


@pytest.mark.parametrize("negatives", [1, 3, B - 1])
def test_contrastive_tension_by_hand(negatives):
    first, second = draw(2)
    terms = []
    for i in range(B):
        for offset in range(negatives + 1):
            score = float(first[i] @ second[(i + offset) % B])
            terms.append(np.log1p(np.exp(-score if offset == 0 else score)))
    loss = contrastive_tension(jnp.asarray(first), jnp.asarray(second), negatives=negatives)
    assert float(loss) == pytest.approx(np.mean(terms), rel=1e-5)


def test_settings_of_other_objectives_are_left_out():
    options = TrainingOptions(settings={"scale": 1.0, "deletion": 0.5, "typo": 0})
    kept, unused = own_settings(find_objective("mnr"), options)
    assert (kept.settings, unused) == ({"scale": 1.0, "typo": 0}, ["deletion"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_whiten(jnp.ones((8, 12)), 5), "divide the width 12"),
        (lambda: group_whiten(jnp.ones((4, 12)), 4), "less than the 4 rows"),
        (lambda: contrastive_tension(jnp.ones((4, 2)), jnp.ones((4, 2)), negatives=4), "1 to 3"),
        (lambda: objective_loss(find_objective("tsdae"))([jnp.ones((2, 4))], None, {}), "make_plan"),
        (lambda: find_objective("tsade"), "Did you mean 'tsdae'"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_evaluator_is_spearman_of_the_encoders_cosines(shallow_model):
    from scipy.stats import spearmanr

    first, second = SENTENCES[:5], SENTENCES[5:]
    gold = np.array([1.0, 3.0, 2.0, 5.0, 4.0])
    pairs = Pairs(first, second, gold, ["all"] * 5)
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", max_length=32)
    score = sts_score(pairs)(encoder)
    vectors = encoder.encode([*first, *second])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = spearmanr((vectors[:5] * vectors[5:]).sum(1), gold).statistic
    assert score == pytest.approx(100 * expected, abs=1e-6)


@pytest.mark.parametrize("objective", OWN, ids=lambda objective: objective.name)
def test_every_number_among_the_settings_has_bounds(objective):
    for setting in numeric(objective):
        for value in NONSENSE:
            with pytest.raises(InputError, match=setting):
                objective_loss(objective, **{setting: value})
