"""Objectives of the experiments: their formulas by hand, what is deleted and restored, a cross-encoder's margins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.test_util import check_grads
from scipy.special import expit, log_softmax

from jaxwhiten import CrossEncoder
from jaxwhiten.errors import InputError
from jaxwhiten.models import load_model
from jaxwhiten.models.layers import EncoderOutput
from jaxwhiten.training import make_plan, objective_loss
from tests.test_losses import B, D, cosines, draw
from tests.tiny import SENTENCES
from tests.training.setups import changed, setup_for
from train.distillation import MARGIN_MSE
from train.masked import MaskedHead
from train.objectives import find_objective
from train.pairs import pair_loss
from train.tension import contrastive_tension
from train.tsdae import Decoder, delete_tokens
from train.whitenedcse import group_whiten, inverse_sqrt


def distilled_in_numpy(name, u, v, teacher):
    first, second = teacher.swapaxes(0, 1)
    if name == "distil_pairs":
        return np.mean((np.diag(cosines(u, v)) - np.diag(cosines(first, second))) ** 2)
    others = ~np.eye(B, dtype=bool)
    target, student = (np.exp(20 * cosines(x, x)) * others for x in (first, u))
    target, student = (x / x.sum(axis=1, keepdims=True) for x in (target, student))
    return np.sum(target[others] * np.log(target[others] / student[others])) / B


@pytest.mark.parametrize("name", ["distil_pairs", "distil_listwise"])
def test_distillation_is_its_formula_whatever_the_teachers_width(name):
    data = draw(2)
    teacher = np.random.default_rng(7).normal(size=(B, 2, D + 5)).astype(np.float32)
    columns = [jnp.asarray(column) for column in data[: find_objective(name).columns[1]]]
    found = float(objective_loss(find_objective(name))(columns, jnp.asarray(teacher), {}))
    expected = distilled_in_numpy(name, *(column.astype(np.float64) for column in (*data, teacher)))
    assert found == pytest.approx(expected, rel=1e-4)


def test_group_whitening_is_zca_of_every_group():
    x = np.random.default_rng(0).normal(size=(64, 12)) @ np.random.default_rng(1).normal(size=(12, 12))
    whitened = np.asarray(group_whiten(jnp.asarray(x, jnp.float32), 4, epsilon=0.0), np.float64)
    for start in range(0, 12, 4):
        group = x[:, start : start + 4]
        values, vectors = np.linalg.eigh(np.cov(group.T, bias=True))
        expected = (group - group.mean(0)) @ (vectors / np.sqrt(values)) @ vectors.T
        np.testing.assert_allclose(whitened[:, start : start + 4], expected, atol=2e-4)


def test_the_gradient_of_the_inverse_root_is_that_of_finite_differences():
    root = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)

    def symmetric(matrix):
        return inverse_sqrt((matrix + matrix.T) / 2)

    check_grads(symmetric, (np.eye(5) + root @ root.T,), order=1, modes=["rev"], atol=1e-2, rtol=1e-2)
    assert np.isfinite(jax.jacrev(inverse_sqrt)(jnp.eye(5))).all(), "equal eigenvalues"


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


@pytest.mark.parametrize("share", [0.0, 0.6, 0.99])
def test_a_share_of_the_tokens_is_deleted_and_the_rest_keeps_its_order(share):
    lengths = [12, 7, 3, 2]
    ids = jnp.tile(jnp.arange(12), (4, 1))  # each token is its position
    draws = [delete_tokens(ids, jnp.array(lengths), share, jax.random.key(n)) for n in range(5)]
    assert (len({str(remaining[0]) for remaining, _ in draws}) > 1) == (share > 0)
    for remaining, counts in draws:
        for row, count, length in zip(np.asarray(remaining), counts, lengths, strict=True):
            assert count == 2 + min(max(round((1 - share) * (length - 2)), 1), length - 2)
            assert (row[0], row[count - 1]) == (0, length - 1)
            assert (np.diff(row[:count]) > 0).all()


def test_the_decoder_sees_the_tokens_before_and_the_vector_alone(shallow_model):
    model = load_model(shallow_model)[0]
    rngs = nnx.Rngs(0)
    decoder = Decoder(model, 1, MaskedHead(model.config, dtype=model.dtype, rngs=rngs), rngs=rngs)
    ids = jnp.tile(jnp.arange(5, 14), (2, 1))
    vectors = jax.random.normal(jax.random.key(0), (2, 32))

    @jax.jit
    def logits(ids, vectors):
        return decoder(model, ids, vectors, rngs=nnx.Rngs(dropout=1))  # the same dropout in every call

    before = logits(ids, vectors)
    later = logits(ids.at[0, 5].add(1), vectors)
    np.testing.assert_array_equal(before[0, :5], later[0, :5])
    assert np.abs(before[0, 5:] - later[0, 5:]).max() > 1e-3
    np.testing.assert_array_equal(before[1], later[1])
    assert np.abs(before - logits(ids, vectors + 1)).max(axis=(1, 2)).min() > 1e-3


def test_losses_of_pairs_are_cross_entropies():
    def loss(logits, gold):
        batch = {"input_ids": jnp.ones((2, 1, 3), int), "lengths": jnp.array([[2], [3]]), "labels": jnp.asarray(gold)}
        model = lambda logits: lambda ids, mask, **_: EncoderOutput((), jnp.asarray(logits))  # noqa: E731
        return float(pair_loss(model)({"encoder": logits}, batch, jax.random.key(0))[0])

    right, wrong = np.log(expit([2.0, -1.0])), np.log(expit([-2.0, 1.0]))
    assert loss([[2.0], [-1.0]], [0.7, 0.0]) == pytest.approx(-(0.7 * right[0] + 0.3 * wrong[0] + wrong[1]) / 2)
    logits = [[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]]
    assert loss(logits, [1, 2]) == pytest.approx(-log_softmax(logits, axis=1)[[0, 1], [1, 2]].mean())


def test_margins_of_the_teacher_are_the_labels(shallow_model, cross_encoder, fresh_cache):
    columns = [SENTENCES[:2], SENTENCES[2:4], SENTENCES[4:6]]
    setup = setup_for(shallow_model, columns, 16, settings={"teacher": str(cross_encoder)})
    teacher = CrossEncoder.from_pretrained(cross_encoder)
    share = [teacher.predict(list(zip(columns[0], texts, strict=True))) for texts in columns[1:]]
    positive, negative = (np.log(x / (1 - x)) for x in share)
    np.testing.assert_allclose(make_plan(MARGIN_MSE, setup).labels, positive - negative, atol=1e-4)
    with pytest.raises(InputError, match="cross-encoder"):
        make_plan(MARGIN_MSE, changed(setup, settings={}))
