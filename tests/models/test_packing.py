"""Tokens without padding: places found again, and encoders that compute the same on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.models import init_model
from jaxwhiten.models.packing import Segments
from tests.conftest import slow_but
from tests.tiny import FAMILIES as OF_ALL
from tests.tiny import tiny_config


def mask_of(lengths, length):
    return jnp.asarray(np.arange(length) < np.asarray(lengths)[:, None], jnp.int32)


# Of all kinds of positions, layers and gates.
FAMILIES = {name: OF_ALL[name] for name in ("bert", "mpnet", "modernbert", "albert")}


@pytest.mark.parametrize("family", slow_but(FAMILIES, "mpnet", "modernbert"))
def test_every_hidden_state_equals_that_of_padded_rows(family):
    model = init_model(tiny_config(initializer_range=0.2, **FAMILIES[family]), seed=0)
    lengths = [17, 11, 3, 1, 17]
    mask = mask_of(lengths, 17)
    ids = jax.random.randint(jax.random.key(0), mask.shape, 5, 200)
    packed, padded = model(ids, mask, tokens=sum(lengths) + 2), model(ids, mask)
    assert len(packed.hidden_states) == len(padded.hidden_states) == model.config.num_layers + 1
    weights = np.asarray(mask)[:, :, None]
    for a, b in zip(packed.hidden_states, padded.hidden_states, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a * weights, b * weights, atol=5e-6)
    assert (packed.pooler is None) == (padded.pooler is None)
    if padded.pooler is not None:
        np.testing.assert_allclose(packed.pooler, padded.pooler, atol=5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_sentences_that_share_a_row_are_computed_as_alone(family):
    model = init_model(tiny_config(initializer_range=0.2, **FAMILIES[family]), seed=0)
    lengths = jnp.array([[7, 3, 5], [17, 0, 0]])
    segments = Segments.of(lengths, 17)
    ids = jax.random.randint(jax.random.key(0), (2, 17), 5, 200)
    shared = model(ids, mask_of([15, 17], 17), segments=segments)
    alone = jnp.stack([jnp.roll(ids[0], -start) for start in (0, 7, 10)] + [ids[1]])
    padded = model(alone, mask_of([7, 3, 5, 17], 17))
    for a, b in zip(shared.hidden_states, padded.hidden_states, strict=True):
        for row, (start, length) in enumerate(((0, 7), (7, 3), (10, 5))):
            np.testing.assert_allclose(a[0, start : start + length], b[row, :length], atol=1e-5)
        np.testing.assert_allclose(a[1], b[3], atol=1e-5)
    if padded.pooler is not None:
        np.testing.assert_allclose(shared.pooler[0], padded.pooler[:3], atol=1e-5)
