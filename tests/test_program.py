"""The compiled program on one CPU device, where batches run side by side in threads."""

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder
from tests.commands.conftest import generated

TEXTS = generated(200)


@pytest.fixture
def on_one_device(tiny_model, monkeypatch):
    monkeypatch.setattr("jaxwhiten.program._CPU_BATCHES", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    monkeypatch.setattr("jax.local_devices", lambda: jax.devices()[:1])
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


def test_side_by_side_gives_the_vectors_of_one_after_the_other(on_one_device, tiny_model):
    program = on_one_device._program
    assert (program.devices, program.in_flight) == (1, 5)
    alone = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    assert alone._program.devices == 1
    alone._program._threads = None
    on_one_device._token_budget = alone._token_budget = 256  # many batches
    names = ("mean", "cls")
    found, expected = (encoder.encode(TEXTS, pooling=names) for encoder in (on_one_device, alone))
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_shape_is_compiled_once(on_one_device, monkeypatch):
    shapes, call = [], type(on_one_device._program).__call__

    def counting(self, ids, lengths, names):
        shapes.append((ids.shape, program._compiled[(*ids.shape, *names)].is_set()))
        return call(self, ids, lengths, names)

    program = on_one_device._program
    monkeypatch.setattr(type(program), "__call__", counting)
    on_one_device._token_budget = 128
    on_one_device.encode(TEXTS)
    different = {shape for shape, _ in shapes}
    assert len(shapes) > len(different)
    assert sum(not known for _, known in shapes) == len(different)


def test_what_a_batch_raises_is_raised(on_one_device, monkeypatch):
    def broken(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(type(on_one_device._program), "__call__", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        on_one_device.encode(TEXTS)


def test_no_memory_splits_the_batch(on_one_device, monkeypatch):
    call, expected = type(on_one_device._program).__call__, on_one_device.encode(TEXTS)

    def full(self, ids, lengths, names):
        if ids.size > 300:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12345 bytes.")
        return call(self, ids, lengths, names)

    monkeypatch.setattr(type(on_one_device._program), "__call__", full)
    with pytest.warns(RuntimeWarning, match="ran out of memory"):
        found = on_one_device.encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
