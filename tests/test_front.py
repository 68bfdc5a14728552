"""Names at the top of the package, and of devices."""

import jax
import pytest

import jaxwhiten
from jaxwhiten import Encoder
from jaxwhiten.errors import InputError


def test_names_at_the_top():
    assert set(jaxwhiten.__all__) <= set(dir(jaxwhiten))
    with pytest.raises(AttributeError, match="no attribute 'encoder_'"):
        jaxwhiten.encoder_  # noqa: B018


@pytest.mark.devices
def test_devices(tiny_model):
    alone = Encoder.from_pretrained(tiny_model, pooling="mean", device="cpu:3")
    assert alone.view.core.engine.devices == 1
    assert {d.id for d in alone.view.core.engine.place(jax.numpy.ones(2)).devices()} == {jax.local_devices()[3].id}
    assert Encoder.from_pretrained(tiny_model, pooling="mean", device="cpu").view.core.engine.devices == 8
    chosen = Encoder.from_pretrained(tiny_model, pooling="mean", device=jax.local_devices()[5])
    assert chosen.view.core.engine.place(jax.numpy.ones(2)).devices() == {jax.local_devices()[5]}
    for device in ("tpu", "cpu:8", "cpu:x", "gpu"):
        with pytest.raises(InputError, match=f"Unknown device '{device}'.*cpu:0, cpu:1"):
            Encoder.from_pretrained(tiny_model, pooling="mean", device=device)
