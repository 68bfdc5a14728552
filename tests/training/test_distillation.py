"""Distillation: the teacher's vectors as labels, their way to the student's width, and the loss in a real step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening
from jaxwhiten.errors import InputError
from jaxwhiten.training.objectives import make_plan, student_map
from tests.sentences import generated
from tests.tiny import write_model
from tests.training.setups import changed, setup_for

TEXTS = generated(160)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("teacher") / "teacher", num_layers=1, seed=3)


@pytest.fixture
def setup(tmp_path_factory, teacher, tmp_path, fresh_cache):
    """A student narrower than its teacher."""
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "dropout": 0.0}
    folder = write_model(tmp_path / "student", attention_dropout=0.0, **sizes)
    return setup_for(folder, [TEXTS], teacher=str(teacher), teacher_pooling="mean")


def draw(n=200, e=12, seed=0):
    return (np.random.default_rng(seed).normal(size=(n, e)) * np.arange(1, e + 1) + 3).astype(np.float32)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_wider_vectors_are_whitened_to_the_students_width_and_turned_towards_it(gamma):
    vectors, sample = draw(), np.arange(0, 200, 2)
    expected = Whitening(5, gamma=gamma).fit(vectors).transform(vectors)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0].astype(np.float32)
    found = np.asarray(student_map(vectors, sample, expected[sample] @ turn + 1, gamma)(vectors))
    assert np.mean(found[sample] ** 2) == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_allclose(found / found.std(), expected @ turn / expected.std(), atol=2e-3)


def test_vectors_of_the_students_width_keep_their_cosines():
    vectors = draw(e=6)
    found = np.asarray(student_map(vectors, np.arange(200), draw(e=6, seed=1))(vectors))
    before, after = (x @ x.T / np.linalg.norm(x, axis=1) / np.linalg.norm(x, axis=1)[:, None] for x in (vectors, found))
    np.testing.assert_allclose(after, before, atol=1e-4)


def test_the_loss_is_that_of_the_teachers_mapped_vectors_which_are_read_back(setup, teacher, monkeypatch):
    plan = make_plan("distil_mse", setup)
    taught = Encoder.from_pretrained(teacher, pooling="mean", max_length=32).encode(TEXTS)
    np.testing.assert_allclose(plan.labels[:, 0], taught, atol=1e-6)
    batch = setup.table.batch(np.arange(8), 32) | {"labels": plan.labels[:8]}
    value, _ = jax.jit(plan.loss)(plan.params, jax.tree.map(jnp.asarray, batch), jax.random.key(0))
    own = setup.start.encode(TEXTS)
    wanted = student_map(plan.labels[:, 0], np.arange(len(TEXTS)), own)(plan.labels[:8, 0])
    assert float(value) == pytest.approx(float(np.mean((own[:8] - np.asarray(wanted)) ** 2)), rel=1e-4)
    monkeypatch.setattr("jaxwhiten.encoding.store.together", None)
    np.testing.assert_array_equal(make_plan("distil_mse", setup).labels, plan.labels)


def test_a_teacher_is_named_and_not_narrower_than_the_student(setup):
    with pytest.raises(InputError, match="Hugging Face model ID"):
        make_plan("distil_mse", changed(setup, teacher=""))
    with pytest.raises(InputError, match=r"has 16 dimensions, the student 32.*wider teacher"):
        student_map(draw(e=16), np.arange(9), draw(9, 32))
