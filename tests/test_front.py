"""What a stranger meets first: the names at the top of the package, and what help says of them."""

import jax
import pytest

import jaxwhiten
from jaxwhiten import Encoder
from jaxwhiten.errors import InputError

NAMES = ["Encoder", "Whitening", "Moments", "build_index", "load_index", "load_sts", "evaluate"]
NAMES += ["semantic_search", "paraphrase_mining", "push_to_hub", "ScoredPairs", "normalize", "POOLINGS"]


def test_names_at_the_top():
    assert set(NAMES) <= set(jaxwhiten.__all__) <= set(dir(jaxwhiten))
    assert all(getattr(jaxwhiten, name) is not None for name in jaxwhiten.__all__)
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
