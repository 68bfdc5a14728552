"""Every engine gives the vectors and bytes of every head: with an empty cache, from it, without one, at every door."""

import dataclasses
import fractions
import gc
import weakref

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening, normalize
from jaxwhiten.codes import SpectrumCode, make_code
from jaxwhiten.codes.plain import UBinary
from jaxwhiten.commands import cli
from jaxwhiten.errors import InputError
from jaxwhiten.head import (
    AfterPrompt,
    Dense,
    LayerMix,
    Mean,
    Normalize,
    Quantize,
    Truncate,
    VectorStep,
    Whiten,
    facts,
    lasting,
    step,
)
from jaxwhiten.head.pooling import Cls, Concat, LastToken
from jaxwhiten.models import load_model
from tests.tiny import SENTENCES

TEXTS = SENTENCES[:3]
ROWS = np.random.default_rng(0).standard_normal((400, 32)).astype(np.float32)
WHITENING = Whitening(8).fit(ROWS)
SPECTRUM, UBINARY = SpectrumCode(bytes=6).fit(Moments().update(ROWS)), make_code("ubinary").fit(ROWS)
INT8 = make_code("int8").fit(3 * ROWS)
WEIGHT = ROWS[:8]

# What follows the pooling, and the same in NumPy.
HEADS = {
    "nothing": ((), lambda x: x),
    "whitening": ((Whiten.of(WHITENING), Normalize()), lambda x: normalize(WHITENING.transform(x))),
    "dense": ((Dense(WEIGHT, np.ones(8, np.float32), None, "Tanh"),), lambda x: np.tanh(x @ WEIGHT.T + 1)),
    "truncated": ((Truncate(8), Normalize()), lambda x: normalize(x[:, :8])),
    "spectrum": ((Quantize.of(SPECTRUM),), SPECTRUM.encode),
    "ubinary": ((Quantize.of(UBINARY),), UBINARY.encode),
    "int8": ((Quantize.of(INT8),), INT8.encode),
    "whitened ubinary": (
        (Whiten.of(WHITENING), Normalize(), Quantize.of(make_code("ubinary").fit(ROWS[:, :8]))),
        lambda x: np.packbits(normalize(WHITENING.transform(x)) > 0, axis=1),
    ),
}


@pytest.fixture(scope="module")
def pooled(shallow_model):
    """Vectors before the steps of `HEADS`, by pooling, from a model in memory, of which nothing is kept."""
    encoder = Encoder.from_module(load_model(shallow_model)[0], shallow_model)
    return encoder.encode(TEXTS, pooling=["mean", "first_last_avg"])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same(found, expected):
    """Bytes may differ where a value lies on the border of two: one in a hundred here would be many."""
    assert found.dtype == expected.dtype
    if found.dtype == np.uint8:
        assert (np.asarray(found) != np.asarray(expected)).mean() < 0.01
    else:
        np.testing.assert_allclose(found, expected, atol=2e-5)


def refuse(*_, **__):
    raise AssertionError("made although it was kept")


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize("name", HEADS)
def test_a_head_in_every_engine_first_and_from_the_cache(name, engine, shallow_model, pooled, cache, monkeypatch):
    steps, expected = HEADS[name]
    pooling = "first_last_avg" if name == "nothing" else "mean"

    def encoder():
        return Encoder.from_pretrained(shallow_model, pooling=pooling, engine=engine).with_view(
            Encoder.from_pretrained(shallow_model, pooling=pooling, engine=engine).view.then(*steps)
        )

    same(encoder().encode(TEXTS), expected(pooled[pooling]))
    assert bool(list(cache.rglob("graph.xml"))) == (engine == "openvino")
    monkeypatch.setattr("jaxwhiten.models.graph.Graph", refuse)
    same(encoder().encode(TEXTS), expected(pooled[pooling]))


def test_without_a_cache(engine, shallow_model, pooled, cache, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", "0")
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine).with_code(SPECTRUM)
    same(encoder.encode(TEXTS), SPECTRUM.encode(pooled["mean"]))
    assert not cache.exists()


def test_every_door(engine, shallow_model, pooled, tmp_path, monkeypatch, capsys):
    """One sentence, precisions, a stream, an index, the command's option and the variable."""
    monkeypatch.setenv("JAXWHITEN_ENGINE", engine)
    encoder, x = Encoder.from_pretrained(shallow_model, pooling="mean"), pooled["mean"]
    assert encoder.view.core.engine.name == engine
    coded, expected = encoder.with_code(SPECTRUM), SPECTRUM.encode(x)
    same(coded.encode(TEXTS[1])[None], expected[1:2])
    same(np.concatenate(list(coded.encode_stream(TEXTS))), expected)
    same(coded.with_view(coded.view.uncoded).encode_query(TEXTS), x)
    own = encoder.encode(TEXTS)  # whose lowest and highest values are the ends of int8's range
    same(own, x)
    for precision in ("int8", "ubinary"):
        expected_bytes = make_code(precision).fit(own).encode(own)
        same(encoder.encode(TEXTS, precision=precision).view(np.uint8), expected_bytes)
    assert [hits[0].id for hits in coded.index(TEXTS).search(TEXTS, k=1)] == [0, 1, 2]
    folder = coded.save(tmp_path / "coded")
    monkeypatch.setenv("JAXWHITEN_ENGINE", engine)
    out, texts = tmp_path / "vectors.npy", tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    assert cli.main(["encode", str(texts), "--model", str(folder), "-o", str(out)]) == 0
    same(np.load(out), expected)


@step
class Scaled(VectorStep):
    """A step of another package, for which the code outside this one is decisive."""

    factor: float

    def __call__(self, x):
        return x * self.factor

    def to_onnx(self, graph, x):
        return graph.op("Mul", x, graph.number(self.factor))


def dense(dtype=np.float32, **how):
    return Dense(WEIGHT.astype(dtype), np.ones(8, dtype), **how)


# Steps of which each computes something else than the next one.
DIFFERENT = {
    "layers": (LayerMix((0, 1), np.ones(2, np.float32)), LayerMix((0, -1), np.ones(2, np.float32))),
    "poolings": (Mean(), Cls(), LastToken()),
    "concatenated": (Concat((Mean(), Cls())), Concat((Cls(), Mean())), Concat((Cls(), Cls(), Mean()))),
    "behind a prompt": (AfterPrompt(Mean(), np.int32(0)), AfterPrompt(Cls(), np.int32(0))),
    "truncated": (Truncate(4), Truncate(5)),
    "dense": (dense(), dense(activation="ReLU"), dense(residual=True), dense(np.float16)),
    "whitening": (Whiten.of(WHITENING), dense(activation="Identity")),
    "codes": (Quantize.of(INT8), Quantize.of(make_code("uint8").fit(ROWS)), Quantize.of(UBINARY)),
    "of others": (Scaled(2.0), Scaled(3.0)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_steps_that_differ_share_no_program(name):
    steps = DIFFERENT[name]
    assert len({facts(each) for each in steps}) == len(steps)
    texts = {lasting(facts(each)) for each in steps}
    assert texts == {None} if name == "of others" else len(texts) == len(steps)
    for each in steps:  # on a device, where records are gone
        assert facts(jax.device_put(each)) == facts(each)


def test_a_class_of_others_in_a_code_is_not_kept():
    class Mine(UBinary):
        name = "ubinary"

    assert lasting(facts(dataclasses.replace(Quantize.of(UBINARY), kind=Mine))) is None
    assert lasting(fractions.Fraction) is None


def test_steps_of_others_are_applied_as_they_are(engine, shallow_model, pooled, cache):
    """Graphs of two steps of one class are told apart, and none is kept for a process with other code."""
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)
    for factor in (2.0, 3.0):
        scaled = encoder.with_view(encoder.view.then(Scaled(factor)))
        np.testing.assert_allclose(scaled.encode(TEXTS), factor * pooled["mean"], atol=1e-4)
    assert encoder.with_view(encoder.view.then(Scaled(2.0))).view.fingerprint not in (
        scaled.view.fingerprint,
        encoder.view.fingerprint,
    )
    assert not list(cache.rglob("graph.xml"))
    with pytest.raises(InputError, match=r"Listed.values: .*unhashable.*use a tuple"):
        encoder.with_view(encoder.view.then(Listed([1.0])))


@step
class Listed(VectorStep):
    values: list


def test_weights_of_two_dtypes(engine, shallow_model, pooled):
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)
    for dtype in (np.float32, np.float16):
        expected = np.tanh(pooled["mean"] @ WEIGHT.astype(dtype).astype(np.float32).T + 1)
        np.testing.assert_allclose(
            encoder.with_view(encoder.view.then(dense(dtype))).encode(TEXTS), expected, atol=1e-4
        )


def test_an_encoder_that_nobody_holds_leaves_memory(engine, shallow_model):
    """Neither the library keeps it nor what the tests check it with."""
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)
    encoder.encode(TEXTS[:2])
    held = weakref.ref(encoder.view.core.engine)
    del encoder
    gc.collect()
    assert held() is None
