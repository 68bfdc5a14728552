"""The engine OpenVINO gives the vectors of JAX, for every family, pooling and head, and refuses what it refuses."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening
from jaxwhiten.codes import make_code
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.encoding.store import space_key
from jaxwhiten.engines.openvino import has_bfloat16, silenced
from jaxwhiten.errors import InputError, JaxwhitenError, MissingDependencyError
from jaxwhiten.head import Normalize
from jaxwhiten.models import StaticEncoder, init_model
from tests.conftest import slow_but
from tests.sentences import generated
from tests.tiny import ALONE, FAMILIES, SENTENCES, tiny_config, write_model, write_tokenizer

SMALL = {"num_layers": 2}
TEXTS = generated(60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("small") / "bert", **SMALL)


def both(model, dtype="float32", **reading):
    with silenced():
        pytest.importorskip("openvino", reason="the engine OpenVINO is not installed")
    reading = {"max_length": 24, "dtype": dtype, "device": "cpu", **reading}
    return tuple(Encoder.from_pretrained(model, engine=engine, **reading) for engine in ("jax", "openvino"))


@pytest.fixture(scope="module")
def pair(folder):
    """The tiny model on one device in JAX, and in OpenVINO."""
    return both(folder, pooling="mean", device="cpu")


def compare(pair, atol=1e-4, **how):
    expected, found = (encoder.encode(SENTENCES, **how) for encoder in pair)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=atol, err_msg=name)


@pytest.mark.parametrize("family", slow_but([name for name in FAMILIES if name != "bert"], "mpnet", "nomic_bert"))
def test_every_family(tmp_path, family):
    changes = FAMILIES[family] | SMALL
    if "local_layers" in changes:
        changes["local_layers"] = (1,)
    pair = both(write_model(tmp_path, **changes), pooling="mean")
    compare(pair, pooling=["first_last_avg"])


def test_every_pooling(pair):
    compare(pair, pooling=[*ALONE, "layers:0+1"])


def test_heads_share_the_encoder_s_program(pair):
    """Whitening, code and prompt behind it: no further graph of the encoder, and float32 whatever that runs in."""
    vectors = pair[0].encode(SENTENCES)
    whitening = Whitening(n_components=5).fit(np.random.default_rng(0).normal(size=(99, 32)).astype(np.float32))
    code = make_code("ubinary").fit(vectors)
    forward = pair[1].view.core.engine
    pair[1].encode(SENTENCES)
    before = sum(key[0] == "poolings" for key in forward._programs)
    for change in (
        lambda e: e.with_whitening(whitening),
        lambda e: e.with_view(e.view.then(*e.with_whitening(whitening).view.head.steps[1:])),
    ):
        expected, found = (change(encoder).encode(SENTENCES) for encoder in pair)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    expected, found = (encoder.with_code(code).encode(SENTENCES) for encoder in pair)
    np.testing.assert_array_equal(found, expected)
    assert sum(key[0] == "poolings" for key in forward._programs) == before


@pytest.mark.parametrize("mode", ["cls", "mean", "max"])
def test_behind_a_prompt(folder, pair, mode):
    from jaxwhiten.head import AfterPrompt, Head

    steps = (AfterPrompt(Head.named(mode).steps[0], np.int32(0)),)
    views = [encoder.view.with_head(Head.of(steps)).with_prompt("Someone makes: ") for encoder in pair]
    expected, found = (view(SENTENCES[:4]) for view in views)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_several_threads_at_once(pair):
    _, encoder = pair
    texts, found = SENTENCES * 40, {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: encoder.encode(texts, batch_size=4)})) for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for vectors in found.values():
        np.testing.assert_allclose(vectors[:10], vectors[-10:], atol=1e-5)
    assert len(found) == 3


def test_no_memory_splits_the_batch(pair, monkeypatch):
    _, encoder = pair
    expected, start = encoder.encode(SENTENCES), type(encoder.view.core.engine).start

    def full(self, batch, *rest, **how):
        if len(batch.rows) > 3:
            raise MemoryError("std::bad_alloc")
        return start(self, batch, *rest, **how)

    monkeypatch.setattr(encoder.view.core.engine.layout, "token_budget", 1024)
    monkeypatch.setattr(type(encoder.view.core.engine), "start", full)
    with pytest.warns(RuntimeWarning, match="Out of device memory"):
        np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)


def test_what_a_batch_raises_is_raised(pair, monkeypatch):
    monkeypatch.setattr(
        type(pair[1].view.core.engine), "start", lambda *_, **how: (_ for _ in ()).throw(RuntimeError("else"))
    )
    with pytest.raises(RuntimeError, match="else"):
        pair[1].encode(SENTENCES)


def test_a_batch_alone_gives_the_vectors_that_it_gives_beside_others(pair):
    """All cores compute it instead of one: the sums are the same, but for their rounding."""
    _, encoder = pair
    alone, beside = encoder.encode(SENTENCES), encoder.encode(SENTENCES, batch_size=2)
    np.testing.assert_allclose(alone, beside, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sentence_without_a_plan_has_the_vectors_of_one_with_a_plan(pair, folder, dtype, monkeypatch):
    """In float32 unit length is part of the program, in bfloat16 a step after it."""
    if dtype == "bfloat16" and not has_bfloat16():
        pytest.skip("this CPU has no bfloat16")
    encoder = Encoder.from_pretrained(folder, engine="openvino", dtype=dtype, pooling="mean", max_length=24)
    encoder = encoder.with_view(encoder.view.then(Normalize()).warm_up(8))
    assert any(key[0] == "tail" for key in encoder.view.core.engine._programs) == (dtype != "float32")
    found = [encoder.encode(text) for text in SENTENCES]
    monkeypatch.setattr("jaxwhiten.engines.batching.FEW_TOKENS", 0)
    other = [encoder.encode(text) for text in SENTENCES]
    np.testing.assert_array_equal(found, other)
    assert len([key for key in encoder.view.core.engine._programs if key[0] == "poolings"]) == 1


def test_ctrl_c_ends_a_run_and_the_encoder_goes_on(pair, monkeypatch):
    _, encoder = pair
    expected, start, count = encoder.encode(SENTENCES), type(encoder.view.core.engine).start, iter(range(9))

    def interrupted(self, *args, **how):
        if next(count) == 3:
            raise KeyboardInterrupt
        return start(self, *args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(type(encoder.view.core.engine), "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(SENTENCES, batch_size=1)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)


def test_engine_and_precision_are_part_of_what_a_vector_is(pair, folder, tmp_path):
    jax, openvino = pair
    engines = [encoder.view.core.engine for encoder in pair]
    assert [(engine.name, engine.dtype) for engine in engines] == [("jax", "float32"), ("openvino", "float32")]
    assert jax.view.fingerprint == openvino.view.fingerprint  # in float32 one may take the other's place
    assert [encoder.view.space.engine for encoder in pair] == ["jax", "openvino"]
    keys = [space_key(encoder.view.with_pooling("mean")) for encoder in pair]
    assert keys[0] != keys[1]
    store = EmbeddingStore(tmp_path)
    for encoder in pair:
        store.encode(encoder, SENTENCES[:2])
    assert len(list(tmp_path.iterdir())) == 2
    assert "by openvino" in repr(openvino)


def test_bfloat16_is_refused_without_its_instructions(folder, pair, monkeypatch):
    from jaxwhiten.engines import chosen, openvino

    monkeypatch.setattr(openvino, "has_bfloat16", lambda: False)
    with pytest.raises(InputError, match=r"no instructions for bfloat16: use dtype='float32'"):
        Encoder.from_pretrained(folder, pooling="mean", engine="openvino", dtype="bfloat16")
    with pytest.warns(UserWarning, match="The engine is jax, not openvino: this CPU has no instructions for bfloat16"):
        assert chosen("auto", folder, "bfloat16") == "jax"


def test_bfloat16(folder, pair, monkeypatch):
    if not has_bfloat16():
        pytest.skip("this CPU has no bfloat16")
    with monkeypatch.context() as patch:
        for limit, lets in {"AVX2": False, "avx512_core": False, "AVX512_CORE_BF16": True}.items():
            patch.setenv("ONEDNN_MAX_CPU_ISA", limit)
            assert has_bfloat16() == lets
    encoder = Encoder.from_pretrained(folder, pooling="mean", max_length=24, engine="openvino", dtype="bfloat16")
    assert encoder.view.core.engine.dtype == "bfloat16"
    assert encoder.view.fingerprint != pair[1].view.fingerprint
    x, y = encoder.encode(SENTENCES), pair[0].encode(SENTENCES)
    cosines = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    assert cosines.min() > 0.999


def test_a_model_in_memory_is_saved_as_it_was(pair, tmp_path):
    write_tokenizer(tmp_path / "tokenizer")
    pytest.importorskip("openvino")
    model = init_model(tiny_config(**SMALL), seed=0)
    encoder = Encoder.from_module(model, tmp_path / "tokenizer", engine="openvino", max_length=24)
    folder = encoder.save(tmp_path / "saved")
    again = Encoder.from_pretrained(folder, engine="openvino", dtype=encoder.view.core.engine.dtype)
    np.testing.assert_allclose(again.encode(SENTENCES[:3]), encoder.encode(SENTENCES[:3]), atol=1e-6)


def test_names_are_checked(folder):
    with pytest.raises(InputError, match=r"Unknown engine 'openvno'\. Did you mean 'openvino'"):
        Encoder.from_pretrained(folder, engine="openvno")
    pytest.importorskip("openvino")
    for reading, said in (
        ({"dtype": "int8"}, "Unknown dtype 'int8'"),
        ({"device": "gpu"}, "device of the engine openvino 'gpu'"),
    ):
        with pytest.raises(JaxwhitenError, match=said):
            Encoder.from_pretrained(folder, pooling="mean", engine="openvino", **{"dtype": "float32", **reading})


def test_a_step_without_operators_is_named(pair):
    from jaxwhiten.head import Normalize

    class Odd(Normalize):
        def to_onnx(self, graph, x):
            return super(Normalize, self).to_onnx(graph, x)

        def words(self):
            return "odd"

    pytest.importorskip("openvino")
    with pytest.raises(InputError, match="odd: cannot be exported to ONNX"):
        pair[1].with_view(pair[1].view.then(Odd())).encode(SENTENCES[:1])


def test_without_openvino_the_error_says_how_to_install_it(folder, monkeypatch):
    from jaxwhiten.engines import openvino

    monkeypatch.setitem(sys.modules, "openvino", None)
    openvino.core.cache_clear()
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[cpu\]'"):
        Encoder.from_pretrained(folder, engine="openvino")


@pytest.mark.slow
def test_nothing_is_imported_for_those_who_do_not_ask():
    program = (
        "import sys, jaxwhiten, jaxwhiten.engines.engine, jaxwhiten.export; "
        "print({'openvino', 'onnx'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


def test_a_static_encoder_has_no_engine(tmp_path):
    pytest.importorskip("openvino")
    write_tokenizer(tmp_path)
    with pytest.raises(InputError, match="engine='jax'"):
        Encoder.from_module(StaticEncoder(np.ones((200, 8), np.float32)), tmp_path, engine="openvino")
