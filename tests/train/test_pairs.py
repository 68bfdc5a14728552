"""The loss of pairs by hand, their rows, and a cross-encoder's margins as labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import CrossEncoder
from jaxwhiten.errors import InputError
from jaxwhiten.models.layers import EncoderOutput
from jaxwhiten.training.objectives import make_plan
from tests.tiny import SENTENCES, write_model
from tests.training.setups import changed, setup_for
from train.distillation import MARGIN_MSE
from train.pairs import pair_loss


def rebuild(logits):
    """A model whose logits are given, whatever the pairs; it checks the mask."""

    def model(ids, mask, **options):
        assert mask.tolist() == [[1, 1, 0], [1, 1, 1]]
        assert options["deterministic"] is False
        return EncoderOutput((), jnp.asarray(logits))

    return model


def loss(logits, gold):
    batch = {"input_ids": jnp.ones((2, 1, 3), int), "lengths": jnp.array([[2], [3]]), "labels": jnp.asarray(gold)}
    return float(pair_loss(rebuild)({"encoder": logits}, batch, jax.random.key(0))[0])


def test_losses_are_cross_entropies():
    probability = 1 / (1 + np.exp(-np.array([2.0, -1.0])))
    expected = -np.mean([0.7 * np.log(probability[0]) + 0.3 * np.log(1 - probability[0]), np.log(1 - probability[1])])
    assert loss([[2.0], [-1.0]], [0.7, 0.0]) == pytest.approx(expected, rel=1e-5)
    logits = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert loss(logits.tolist(), [1, 2]) == pytest.approx(-np.log(shares[[0, 1], [1, 2]]).mean(), rel=1e-5)


def test_margins_of_the_teacher_are_the_labels(cross_encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    columns = [SENTENCES[:2], SENTENCES[2:4], SENTENCES[4:6]]
    folder = write_model(tmp_path / "model", num_layers=1)
    setup = setup_for(folder, columns, 16, settings={"teacher": str(cross_encoder), "scale": 5.0})
    plan = make_plan(MARGIN_MSE, setup)
    teacher = CrossEncoder.from_pretrained(cross_encoder)
    share = [teacher.predict(list(zip(columns[0], columns[i], strict=True))) for i in (1, 2)]
    margins = np.diff([np.log(x / (1 - x)) for x in share[::-1]], axis=0)[0]
    np.testing.assert_allclose(plan.labels, margins, atol=1e-4)
    with pytest.raises(InputError, match="takes its labels from a cross-encoder: specify it"):
        make_plan(MARGIN_MSE, changed(setup, settings={}))
