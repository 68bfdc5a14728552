"""The compiled program on one CPU device, where batches run side by side in threads."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.engines.forward import JAXEngine, forward
from jaxwhiten.models import init_model
from tests.sentences import generated
from tests.tiny import by_pooling, tiny_config

pytestmark = pytest.mark.devices

TEXTS = generated(200)


@pytest.fixture
def on_one_device(tiny_model, monkeypatch):
    monkeypatch.setattr("jaxwhiten.engines.forward._CPU_BATCHES", 3)
    monkeypatch.setattr("jaxwhiten.engines.forward.cores", lambda: 3)
    monkeypatch.setattr("jax.local_devices", lambda: jax.devices()[:1])
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


def test_side_by_side_gives_the_vectors_of_one_after_the_other(on_one_device, tiny_model):
    program = on_one_device.view.core.engine
    assert (program.devices, program.in_flight) == (1, 5)
    alone = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    assert alone.view.core.engine.devices == 1
    alone.view.core.engine._threads = None
    on_one_device.view.core.engine.layout.token_budget = alone.view.core.engine.layout.token_budget = (
        256  # many batches
    )
    names = ("mean", "cls")
    found, expected = (by_pooling(encoder, TEXTS, names) for encoder in (on_one_device, alone))
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name])


def test_few_sentences_take_no_thread_and_have_the_same_vectors(on_one_device, monkeypatch):
    """Those of a list of one block, to the bit, as a stream has them, which tokenizes and computes in threads."""
    streamed = {n: next(iter(on_one_device.encode_stream(TEXTS[:n]))) for n in (1, 5, 200)}
    for kind in ("jaxwhiten.views.stream", "jaxwhiten.engines.forward"):
        monkeypatch.setattr(f"{kind}.ThreadPoolExecutor.submit", None)
    for n in (1, 5):
        np.testing.assert_array_equal(on_one_device.encode(TEXTS[:n]), streamed[n])
    monkeypatch.undo()
    np.testing.assert_array_equal(on_one_device.encode(TEXTS), streamed[200])


def test_no_query_is_compiled_for_once_the_encoder_is_warm(on_one_device):
    assert on_one_device.view.warm_up(24) is on_one_device.view
    compiled = set(on_one_device.view.core.engine._compiled)
    assert {key[0] for key in compiled} == {(1, 8), (1, 16), (1, 24)}
    for text in (
        "",
        "a man",
        *(text for text in TEXTS[:40] if on_one_device.view.core.tokenizer([text]).lengths[0] <= 24),
    ):
        on_one_device.encode(text)
    assert set(on_one_device.view.core.engine._compiled) == compiled


def test_a_shape_is_compiled_once(on_one_device, monkeypatch):
    shapes, start = [], JAXEngine.start
    lowered, lower = [], forward.lower

    def counting(self, batch, tokens, heads, **how):
        shapes.append((batch.height, batch.length, batch.tokens, *heads))
        return start(self, batch, tokens, heads, **how)

    monkeypatch.setattr(JAXEngine, "start", counting)
    counted = SimpleNamespace(lower=lambda *a: lowered.append(a) or lower(*a))
    monkeypatch.setattr("jaxwhiten.engines.forward.forward", counted)
    on_one_device.view.core.engine.layout.token_budget = 128
    on_one_device.encode(TEXTS)
    assert len(shapes) > len(set(shapes)) == len(lowered)


def test_encoders_of_one_shape_share_their_programs(tiny_model):
    """Other weights, made in memory: the second encoder compiles nothing."""
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    counts = []
    for seed in (0, 1):
        encoder = Encoder.from_module(
            init_model(tiny_config(intermediate_size=72), seed=seed), tiny_model, max_length=32
        )
        compiled.clear()
        encoder.encode(TEXTS[:20])
        counts.append(len(compiled))
    assert counts[0] > 0 == counts[1]
