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


def trained(module):
    """Changes a module as a step of an optimizer does; the embeddings are bent, so that no scale can hide it."""
    state = nnx.state(module, nnx.Param)
    nnx.update(module, jax.tree.map(lambda x: np.sin(3 * np.asarray(x)).astype(x.dtype), state))
    return module


def everything(encoder, folder):
    """What depends on the weights: compiled before, compiled now, saved, and the fingerprint."""
    again = Encoder.from_pretrained(encoder.save(folder), engine="jax")
    return encoder.encode(TEXTS), encoder.encode(TEXTS, pooling="max"), again.encode(TEXTS)


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
    expected = everything(encoder, tmp_path / "before")
    encoder, module = GIVEN[given](encoder, shallow_model)
    encoder.encode(TEXTS)
    trained(module)
    for found, before in zip(everything(encoder, tmp_path / "after"), expected, strict=True):
        np.testing.assert_allclose(found, before, atol=1e-5)


def test_a_step_may_donate_the_buffers_of_a_module(encoder):
    expected = encoder.encode(TEXTS)
    state = jax.tree.map(jax.numpy.asarray, nnx.state(encoder.module))
    jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)(state)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)


def test_with_module_everything_has_the_new_weights(encoder, shallow_model, tmp_path):
    module = trained(encoder.module)
    reference = Encoder.from_module(module, shallow_model, pooling="mean")
    new = encoder.with_module(module)
    expected = reference.encode(TEXTS), reference.encode(TEXTS, pooling="max"), reference.encode(TEXTS)
    assert np.abs(expected[0] - encoder.encode(TEXTS)).max() > 0.01
    for found, of_reference in zip(everything(new, tmp_path / "new"), expected, strict=True):
        np.testing.assert_allclose(found, of_reference, atol=1e-4)
    assert new.view.fingerprint == reference.view.fingerprint != encoder.view.fingerprint
    assert (new.view.core.engine.name, new.view.core.engine.dtype, new.max_length) == (
        encoder.view.core.engine.name,
        encoder.view.core.engine.dtype,
        encoder.max_length,
    )


def test_with_module_omits_what_was_fitted_on_other_vectors(encoder):
    small = encoder.shrink(generated(60), k=4, bytes=2)
    with pytest.warns(UserWarning, match="refit"):
        new = small.with_module(encoder.module)
    assert (new.view.head.whitening, new.view.head.code) == (None, None)
