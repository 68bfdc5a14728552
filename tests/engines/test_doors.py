"""Every engine gives the vectors and bytes of every head: with an empty cache, from it, without one, at every door."""

import gc
import weakref

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening
from jaxwhiten.codes import SpectrumCode, make_code
from jaxwhiten.commands import cli
from jaxwhiten.models import load_model
from tests.tiny import SENTENCES

TEXTS = SENTENCES[:3]
ROWS = np.random.default_rng(0).standard_normal((400, 32)).astype(np.float32)
WHITENING = Whitening(8).fit(ROWS)
SPECTRUM, UBINARY = SpectrumCode(bytes=6).fit(Moments().update(ROWS)), make_code("ubinary").fit(ROWS)
INT8 = make_code("int8").fit(3 * ROWS)
WEIGHT = ROWS[:8]


@pytest.fixture(scope="module")
def pooled(shallow_model):
    """Vectors before the steps of `HEADS`, by pooling, from a model in memory, of which nothing is kept."""
    encoder = Encoder(load_model(shallow_model)[0], shallow_model)
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
    monkeypatch.delenv("JAXWHITEN_ENGINE")
    out, texts = tmp_path / "vectors.npy", tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    assert cli.main(["encode", str(texts), "--model", str(folder), "--engine", engine, "-o", str(out)]) == 0
    same(np.load(out), expected)


def test_an_encoder_that_nobody_holds_leaves_memory(engine, shallow_model):
    """Neither the library keeps it nor what the tests check it with."""
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)
    encoder.encode(TEXTS[:2])
    held = weakref.ref(encoder.view.core.engine)
    del encoder
    gc.collect()
    assert held() is None
