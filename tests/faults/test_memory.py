"""A device without room for a batch: the batch is split and tried again, with a note."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.engines.forward import JAXEngine
from jaxwhiten.errors import JaxwhitenError
from tests.sentences import generated
from tests.tiny import by_pooling

pytestmark = pytest.mark.jax

TEXTS = generated(300)
NO_ROOM = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12345 bytes.")


class Full(JAXEngine):
    """An engine with room for some tokens, which says so when a batch is fetched."""

    def __init__(self, engine, tokens):
        vars(self).update(vars(engine))
        self.tokens, self.refused = tokens, 0

    def start(self, batch, tokens, heads, **how):
        if batch.tokens <= self.tokens:
            return super().start(batch, tokens, heads, **how)
        self.refused += 1
        return NO_ROOM

    def fetch(self, handle, **how):
        if handle is NO_ROOM:
            raise NO_ROOM
        return super().fetch(handle, **how)


def on(encoder, engine):
    encoder.view = encoder.view.over(dataclasses.replace(encoder.view.core, engine=engine))
    return engine


@pytest.fixture
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.mark.slow
@pytest.mark.parametrize("names", [["mean"], pytest.param(["mean", "cls"], marks=pytest.mark.devices)])
def test_batches_are_halved_until_they_fit(encoder, names):
    expected = by_pooling(encoder, TEXTS, names)
    # on eight devices the smallest batch has eight rows
    full = on(encoder, Full(encoder.view.core.engine, 600))
    with pytest.warns(RuntimeWarning, match="Out of device memory"):
        found = by_pooling(encoder, TEXTS, names)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    refused = full.refused
    encoder.encode(TEXTS)
    assert full.refused == refused  # from here on batches are small enough


def test_what_cannot_be_split_is_an_error(encoder):
    on(encoder, Full(encoder.view.core.engine, 8))
    with pytest.warns(RuntimeWarning), pytest.raises(JaxwhitenError, match="lower `max_length`"):
        encoder.encode(TEXTS)


def test_other_errors_of_the_device_are_not_hidden(encoder):
    class Broken(Full):
        def start(self, *_, **how):
            raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    on(encoder, Broken(encoder.view.core.engine, 0))
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        encoder.encode(TEXTS)
