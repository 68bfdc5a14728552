"""What every engine promises, at every door: an engine is tested by being registered. `tests/head` has every head."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.commands import cli
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.engines import ENGINES
from jaxwhiten.errors import InputError, JaxwhitenError
from jaxwhiten.head import Normalize
from jaxwhiten.models import StaticEncoder, load_model
from tests.tiny import SENTENCES, write_tokenizer

CODE = SpectrumCode(bytes=6).fit(np.random.default_rng(0).standard_normal((400, 32)).astype(np.float32))
FULL = {"jax": jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "openvino": MemoryError("bad_alloc")}


@pytest.fixture(params=ENGINES)
def engine(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.fixture(scope="module")
def expected(shallow_model):
    """The vectors of a model in memory, of which nothing is kept."""
    return Encoder.from_module(load_model(shallow_model)[0], shallow_model, pooling="mean", engine="jax").encode(
        SENTENCES
    )


@pytest.fixture
def encoder(engine, shallow_model):
    return Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)


def same(found, expected):
    """Bytes may differ where a value lies on the border of two: one in a hundred here would be many."""
    assert (np.asarray(found) != np.asarray(CODE.encode(expected))).mean() < 0.01


def test_every_door(engine, encoder, shallow_model, expected, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("JAXWHITEN_ENGINE", engine)
        coded = Encoder.from_pretrained(shallow_model, pooling="mean").with_code(CODE)
    assert (coded.view.core.engine.name, coded.view.core.engine.dtype, coded.view.space.engine) == (
        *(engine, "float32"),
        engine,
    )
    same(coded.encode(SENTENCES[1])[None], expected[1:2])
    same(np.concatenate(list(coded.encode_stream(SENTENCES))), expected)
    same(encoder.encode(SENTENCES, precision=CODE), expected)
    texts = [text for text in SENTENCES if text]
    assert [hits[0].id for hits in encoder.index(texts).search(texts, k=1)] == list(range(len(texts)))
    folder = coded.save(tmp_path / "coded")
    out, file = tmp_path / "vectors.npy", tmp_path / "texts.txt"
    file.write_text("\n".join(texts))
    monkeypatch.setenv("JAXWHITEN_ENGINE", engine)
    assert cli.main(["encode", str(file), "--model", str(folder), "-o", str(out)]) == 0
    same(np.load(out), expected[[bool(text) for text in SENTENCES]])


def test_without_a_cache(engine, shallow_model, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", "0")
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)
    assert not (tmp_path / "cache" / "compiled").exists()


def test_an_encoder_that_nobody_holds_leaves_memory(engine, shallow_model):
    """Neither the library keeps it nor what the tests check it with."""
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine=engine)
    encoder.encode(SENTENCES[:2])
    held = weakref.ref(encoder.view.core.engine)
    del encoder
    gc.collect()
    assert held() is None


def test_engines_share_a_fingerprint_and_no_stored_vector(encoder, shallow_model, tmp_path):
    """In float32 one may take the other's place; what is kept is each one's own."""
    other = Encoder.from_pretrained(shallow_model, pooling="mean", engine="jax")
    assert encoder.view.fingerprint == other.view.fingerprint
    for each in (encoder, other):
        EmbeddingStore(tmp_path).encode(each, SENTENCES[:2])
    assert len(list(tmp_path.iterdir())) == len({encoder.view.space.engine, "jax"})


def test_threads_get_their_own_vectors_whatever_their_batches(encoder, expected):
    def encode(number):
        return encoder.encode(SENTENCES * 3, batch_size=3 + number % 2)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(encode, range(6)):
            np.testing.assert_allclose(found, np.tile(expected, (3, 1)), atol=1e-5)


FAILURES = {
    "no memory": (lambda name: FULL[name], None),
    "Ctrl-C": (lambda name: KeyboardInterrupt(), KeyboardInterrupt),
    "another error": (lambda name: RuntimeError("else"), RuntimeError),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_batch_that_fails_is_split_or_ends_the_call_and_the_encoder_goes_on(
    encoder, expected, engine, failure, monkeypatch
):
    make, raised = FAILURES[failure]
    start = type(encoder.view.core.engine).start

    def failing(self, batch, *rest, **how):
        if len(batch.rows) > 3:
            raise make(engine)
        return start(self, batch, *rest, **how)

    with monkeypatch.context() as patch:
        patch.setattr(encoder.view.core.engine.layout, "token_budget", 1024)
        patch.setattr(type(encoder.view.core.engine), "start", failing)
        with pytest.raises(raised) if raised else pytest.warns(RuntimeWarning, match="Out of device memory"):
            np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)


class Odd(Normalize):
    def to_onnx(self, graph, x):
        return super(Normalize, self).to_onnx(graph, x)

    def words(self):
        return "odd"


def static(folder, name):
    write_tokenizer(folder)
    return Encoder.from_module(StaticEncoder(np.ones((200, 8), np.float32)), folder, engine=name)


MISTAKES = {
    "a typo": ({"engine": "openvno"}, "'openvino'"),
    "no such dtype": ({"engine": "openvino", "dtype": "int8"}, "'int8'"),
    "no such dtype in JAX": ({"engine": "jax", "dtype": "int8"}, "'int8'"),
    "no such device": ({"engine": "openvino", "device": "gpu"}, "'gpu'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_names_are_checked(shallow_model, mistake):
    pytest.importorskip("openvino")
    how, words = MISTAKES[mistake]
    with pytest.raises(JaxwhitenError, match=words):
        Encoder.from_pretrained(shallow_model, pooling="mean", **how)


def test_what_openvino_does_not_take_is_named(shallow_model, tmp_path):
    pytest.importorskip("openvino")
    with pytest.raises(InputError, match="engine='jax'"):
        static(tmp_path, "openvino")
    encoder = Encoder.from_pretrained(shallow_model, pooling="mean", engine="openvino")
    with pytest.raises(InputError, match="odd: cannot be exported"):
        encoder.with_view(encoder.view.then(Odd())).encode(SENTENCES[:1])
