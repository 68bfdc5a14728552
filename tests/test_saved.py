"""What is saved, or cached, and read again encodes as before: whatever the steps of its head, its prompt or length."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.head import Dense, Normalize
from tests.sentences import generated

TEXTS = generated(300)
WEIGHT = np.random.default_rng(0).normal(size=(24, 32)).astype(np.float32) / 4
STEPS = {
    "pooling": (),
    "dense": (Dense(WEIGHT, None, None, "Tanh"),),
    "dense, unit length": (Dense(WEIGHT, None, None, "Tanh"), Normalize()),
    "unit length, dense": (Normalize(), Dense(WEIGHT, None, None, "Identity")),
    "all": (Dense(WEIGHT, None, None, "Tanh"), Normalize(), Dense(WEIGHT[:, :24], None, None, "Tanh"), Normalize()),
}


@pytest.mark.parametrize("fitted", [None, "whitening", "code"])
@pytest.mark.parametrize("steps", STEPS)
def test_a_saved_head_is_whole(tiny_model, tmp_path, steps, fitted):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    for step in STEPS[steps]:
        encoder = encoder.with_view(encoder.view.then(step))
    if fitted:
        whitening = Whitening(n_components=16, gamma=0.5).fit(np.asarray(encoder.encode(TEXTS)))
        encoder = encoder.with_whitening(whitening)
        if fitted == "code":
            encoder = encoder.with_code(SpectrumCode(bytes=4).fit(whitening))
    loaded = Encoder.from_pretrained(encoder.save(tmp_path / "model"))
    one, other = (np.asarray(some.with_view(some.view.uncoded).encode(TEXTS[:20])) for some in (encoder, loaded))
    np.testing.assert_allclose(other, one, atol=1e-5)
    assert (loaded.view.code is None) == (fitted != "code")
