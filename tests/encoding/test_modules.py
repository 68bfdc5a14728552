"""An encoder keeps its weights whatever becomes of the modules that it gave or got, and `with_module` takes others."""

import jax
import numpy as np
import pytest
from flax import nnx

from jaxwhiten import Encoder
from jaxwhiten.models import load_model
from tests.sentences import generated
from tests.tiny import SENTENCES

TEXTS = SENTENCES[:3]


@pytest.fixture
def encoder(engine, shallow_model):
    return Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)


GIVEN = {
    "by model()": lambda encoder, folder: (encoder, encoder.module),
    "to the constructor": lambda encoder, folder: (
        Encoder.from_module(module := load_model(folder)[0], folder, engine=encoder.view.core.engine.name),
        module,
    ),
    "to with_module": lambda encoder, folder: (encoder.with_module(module := encoder.module), module),
}


@pytest.mark.parametrize("given", GIVEN)
def test_training_a_module_changes_no_encoder(encoder, shallow_model, given, tmp_path):
    """A step of an optimizer, which bends the embeddings, so that no scale can hide it."""
    expected = encoder.encode(TEXTS), encoder.encode(TEXTS, pooling="max")
    encoder, module = GIVEN[given](encoder, shallow_model)
    encoder.encode(TEXTS)
    state = nnx.state(module, nnx.Param)
    nnx.update(module, jax.tree.map(lambda x: np.sin(3 * np.asarray(x)).astype(x.dtype), state))
    for each in (encoder, Encoder.from_pretrained(encoder.save(tmp_path / "after"), engine="jax")):
        np.testing.assert_allclose(each.encode(TEXTS), expected[0], atol=1e-5)
        np.testing.assert_allclose(each.encode(TEXTS, pooling="max"), expected[1], atol=1e-5)
    new = encoder.with_module(module)
    assert (new.view.core.engine.name, new.max_length) == (encoder.view.core.engine.name, encoder.max_length)
    assert np.abs(new.encode(TEXTS) - expected[0]).max() > 0.01
    other = Encoder.from_module(module, shallow_model, pooling="mean")
    np.testing.assert_allclose(new.encode(TEXTS), other.encode(TEXTS), atol=1e-4)
    assert new.view.fingerprint == other.view.fingerprint != encoder.view.fingerprint


def test_a_step_may_donate_the_buffers_of_a_module(encoder):
    expected = encoder.encode(TEXTS)
    state = jax.tree.map(jax.numpy.asarray, nnx.state(encoder.module))
    jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)(state)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)


def test_with_module_omits_what_was_fitted_on_other_vectors(shallow_model):
    encoder = Encoder(shallow_model, pooling="mean")
    small = encoder.shrink(generated(60), k=4, bytes=2)
    with pytest.warns(UserWarning, match="refit"):
        new = small.with_module(encoder.module)
    assert (new.view.head.whitening, new.view.head.code) == (None, None)


@nnx.jit
def mean_pooled(module, batch):
    states, mask = module(**batch).hidden_states[-1], batch["attention_mask"][..., None]
    return (states * mask).sum(axis=1) / mask.sum(axis=1)


def test_tokenize_gives_what_the_module_takes(shallow_model):
    encoder = Encoder(shallow_model, pooling="mean", prompts={"query": "dog "}, max_length=12)
    texts = [*TEXTS, " ".join(TEXTS), ""]
    batch = encoder.tokenize(texts)
    assert {(name, array.dtype.name, array.shape) for name, array in batch.items()} == {
        ("input_ids", "int32", (5, 12)),
        ("attention_mask", "int32", (5, 12)),
    }
    np.testing.assert_allclose(mean_pooled(encoder.module, batch), encoder.encode(texts), atol=1e-5)
    prompted = mean_pooled(encoder.module, encoder.tokenize(TEXTS, prompt="dog "))
    np.testing.assert_allclose(prompted, encoder.encode_query(TEXTS), atol=1e-5)
    assert encoder.tokenize([])["input_ids"].shape[0] == 0
