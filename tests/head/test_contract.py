"""What every step, pooling and code promises: one result in every engine, folder and graph, and in NumPy.

A new one is a class: two of them are made here, and found in `encode`, in folders, in ONNX and on the card.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.codes import CODES, make_code
from jaxwhiten.engines import ENGINES
from jaxwhiten.export import export_sentence_transformer, save_onnx
from jaxwhiten.head import (
    POOLINGS,
    AfterPrompt,
    Dense,
    Head,
    Normalize,
    Pooling,
    Quantize,
    Step,
    StepModule,
    Truncate,
    VectorStep,
    Whiten,
    dense_module,
    step,
)
from jaxwhiten.head.pooling import Concat
from jaxwhiten.models import load_model
from tests.conftest import slow_but
from tests.graphs import run as run_onnx
from tests.tiny import ALONE, FAMILIES, SENTENCES, by_pooling, write_model

LENGTH = 24


@step
class Scale(VectorStep):
    """All columns times a number."""

    factor: float

    def __call__(self, x):
        return x * self.factor

    def to_folder(self, target):
        return [dense_module(np.eye(target.width) * self.factor)]

    def to_onnx(self, graph, x):
        return graph.op("Mul", x, graph.number(self.factor))

    def words(self):
        return f"times {self.factor:g}"


@step
class TwiceMax(Pooling):
    """Twice the maximum of the tokens."""

    def pool(self, x, states):
        return 2 * jnp.where(states.mask[:, :, None] > 0, x, -jnp.inf).max(1)

    def to_folder(self, target):
        config = {"word_embedding_dimension": target.width, "pooling_mode": "max"}
        return [StepModule("Pooling", config), dense_module(2 * np.eye(target.width))]

    def to_onnx(self, graph, x):
        mask = graph.op("Cast", graph.op("Unsqueeze", x.weights, graph.integers(2)), to=9)
        masked = graph.op("Where", mask, x.mixed(graph), graph.number(-1e30))
        return graph.op("Mul", graph.op("ReduceMax", masked, axes=[1], keepdims=0), graph.number(2.0))

    def words(self):
        return "twice the maximum"


RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((400, 32)).astype(np.float32)
WHITENING = Whitening(8, beta=0.9, gamma=0.8).fit(ROWS)
W, B = ROWS[:8] / 4, np.linspace(-1, 1, 8, dtype=np.float32)
HALF = W.astype(np.float16)
# Fitted on shorter rows, so that some values are out of range.
CODED = {name: make_code(name, **({"bytes": 6} if name == "spectrum" else {})).fit(ROWS / 4) for name in CODES}
SMALL = make_code("ubinary").fit(ROWS[:, :8])

# What follows the pooling, and the same in NumPy.
HEADS = {
    "nothing": ((), lambda x: x),
    "whitening": ((Whiten.of(WHITENING), Normalize()), lambda x: normalize(WHITENING.transform(x))),
    "dense": ((Dense(W, B, None, "Tanh"),), lambda x: np.tanh(x @ W.T + B)),
    "dense, float16": ((Dense(HALF, B, None, "ReLU"),), lambda x: np.maximum(x @ HALF.astype(np.float32).T + B, 0)),
    "dense, residual": ((Dense(np.eye(32, dtype=np.float32), None, None, "Tanh", True),), lambda x: np.tanh(x) + x),
    "dense, wide residual": ((Dense(W, B, W, "Identity", True),), lambda x: 2 * x @ W.T + B),
    "truncated": ((Truncate(8), Normalize()), lambda x: normalize(x[:, :8])),
    **{f"code {name}": ((Quantize.of(code),), code.encode) for name, code in CODED.items()},
    "whitened bits": (
        (Whiten.of(WHITENING), Normalize(), Quantize.of(SMALL)),
        lambda x: SMALL.encode(normalize(WHITENING.transform(x))),
    ),
    "of others": ((Scale(3.0),), lambda x: 3 * x),
}


def steps(kind=Step):
    return {kind} | {each for below in kind.__subclasses__() for each in steps(below)}


def test_every_step_is_tried():
    tried = {type(one) for after, _ in HEADS.values() for one in after}
    tried |= {type(one) for name in ALONE for one in Head.named(name).steps}
    elsewhere = {AfterPrompt, Concat}  # test_any_folder.py
    ours = {kind for kind in steps() if kind.__module__.startswith("jaxwhiten.head") and "__call__" in vars(kind)}
    assert {kind for kind in ours if kind.__subclasses__() == []} <= tried | elsewhere


@pytest.fixture(scope="module")
def pooled(shallow_model):
    """Vectors before the steps of `HEADS`, from a model in memory, of which nothing is kept."""
    return Encoder.from_module(load_model(shallow_model)[0], shallow_model, pooling="mean", max_length=LENGTH).encode(
        SENTENCES
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def own_pooling(monkeypatch):
    monkeypatch.setitem(POOLINGS, "twice_max", lambda parameters: ("", lambda source: (TwiceMax(),)))


def same(found, expected, atol=2e-5):
    """Bytes may differ where a value lies on the border of two: one in fifty here would be many."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype == np.uint8:
        assert (np.asarray(found) != np.asarray(expected)).mean() < 0.02
    else:
        np.testing.assert_allclose(found, expected, atol=atol)


def made(folder, name, **how):
    encoder = Encoder.from_pretrained(folder, pooling="mean", max_length=LENGTH, **how)
    return encoder.with_view(encoder.view.then(*HEADS[name][0])) if HEADS[name][0] else encoder


def check_what_is_written(encoder, wanted, folder):
    """Folder, card and graph of an encoder, and what reads them."""
    out = export_sentence_transformer(folder / "model", encoder)
    card = (out / "README.md").read_text(encoding="utf-8")
    again = Encoder.from_pretrained(out)
    same(again.encode(SENTENCES), wanted)
    assert (again.dimension, again.max_length) == (encoder.dimension, LENGTH)
    if (code := encoder.view.head.code) is not None:
        assert repr(again.view.head.code) == repr(code)
        assert f"{code.name} code of {code.nbytes} bytes" in card
        same(again.view.uncoded(SENTENCES), encoder.view.uncoded(SENTENCES))
    pytest.importorskip("onnxruntime")
    same(run_onnx(save_onnx(folder / "onnx", again)), wanted, 1e-4)
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(out), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(theirs, encoder.view.uncoded(SENTENCES), atol=2e-5)
    return card


def refuse(*_, **__):
    raise AssertionError("made although it was kept")


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize("name", HEADS)
def test_a_head_in_every_engine_first_and_from_the_cache(name, engine, shallow_model, pooled, cache, monkeypatch):
    wanted = HEADS[name][1](pooled)
    same(made(shallow_model, name, engine=engine).encode(SENTENCES), wanted)
    kept = engine == "openvino" and name != "of others"  # whose class another process may not have
    assert bool(list(cache.rglob("graph.xml"))) == kept
    if kept or engine == "jax":
        monkeypatch.setattr("jaxwhiten.models.graph.Graph", refuse)
    same(made(shallow_model, name, engine=engine).encode(SENTENCES), wanted)


@pytest.mark.parametrize("name", slow_but(HEADS, "whitened bits", "of others"))
def test_a_head_in_folders_and_graphs(name, shallow_model, pooled, tmp_path):
    encoder = made(shallow_model, name)
    card = check_what_is_written(encoder, HEADS[name][1](pooled), tmp_path)
    assert ("times 3" in card) == (name == "of others")
    again = Encoder.from_pretrained(tmp_path / "model")
    if name.startswith(("white", "code")):
        assert again.view.fingerprint == encoder.view.fingerprint
    blocks = list(encoder.encode_stream(SENTENCES, block_size=4))
    same(np.concatenate(blocks), HEADS[name][1](pooled))


POOLED = [*(name for name in ALONE if name != "pooler"), "layers:-1", "layers: 0, 2 + 2", "twice_max"]


@pytest.mark.parametrize(
    ("family", "written"),
    [
        ("bert", ["lasttoken", "twice_max"]),
        *(pytest.param(family, POOLED, marks=pytest.mark.slow) for family in ("bert", "modernbert")),
    ],
)
def test_every_pooling_whitened_in_every_engine_folder_and_graph(family, written, tmp_path, own_pooling):
    folder = write_model(tmp_path / family, **FAMILIES[family])
    encoders = [Encoder.from_pretrained(folder, pooling="mean", max_length=LENGTH, engine=name) for name in ENGINES]
    names = [*POOLED, *["pooler"] * (family == "bert")]  # which no module of a folder is
    plain, other = (by_pooling(encoder, SENTENCES, names) for encoder in encoders)
    for pooling, vectors in plain.items():
        np.testing.assert_allclose(other[pooling], vectors, atol=1e-4, err_msg=pooling)
    for pooling in written:
        vectors = plain[pooling]
        encoder = Encoder.from_pretrained(folder, pooling=pooling, max_length=LENGTH).with_whitening(WHITENING)
        wanted = normalize(WHITENING.transform(vectors))
        np.testing.assert_allclose(encoder.encode(SENTENCES), wanted, atol=1e-5, err_msg=pooling)
        card = check_what_is_written(encoder, np.asarray(wanted), tmp_path / pooling.replace(" ", ""))
        assert ("twice the maximum" in card) == (pooling == "twice_max")
    np.testing.assert_allclose(plain["twice_max"], 2 * plain["max"], atol=1e-5)
    np.testing.assert_allclose(plain["layers:-1"], plain["mean"], atol=1e-6)
