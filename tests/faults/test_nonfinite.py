"""NaN, infinities, undefined scores and rounding noise are said, and never become numbers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, evaluate, normalize
from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets.chunks import Source
from jaxwhiten.encoding import EmbeddingStore, arrow
from jaxwhiten.errors import DataError, NonFiniteError
from jaxwhiten.head import Normalize
from jaxwhiten.models import save_model
from jaxwhiten.models.graph import Graph
from jaxwhiten.runners import Parts, embed_files
from jaxwhiten.search import build_index, load_index
from tests.conftest import slow_but
from tests.sentences import generated
from tests.tiny import SENTENCES, write_model, write_tokenizer

WORD, BAD = "guitar", 13
TEXTS = [text for text in generated(40) if WORD not in text][:24]
TEXTS[BAD] = SENTENCES[0]
NAMED = rf"text {BAD}, '{SENTENCES[0][:20]}.* contains NaN or inf"


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory):
    """A model whose weights are all finite, and whose vectors of one word are not."""
    folder = tmp_path_factory.mktemp("models") / "overflowing"
    encoder = Encoder.from_pretrained(write_model(folder.with_name("sound")), pooling="mean")
    model, ids = encoder.module, encoder.view.core.tokenizer([WORD]).flat[1:-1]
    table = np.array(model.embeddings.word.embedding[...])
    table[ids] = 3e38
    model.embeddings.word.embedding[...] = jnp.asarray(table)
    save_model(model, folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(overflowing):
    return Encoder.from_pretrained(overflowing, pooling="mean", max_length=32, engine="jax")


def coded(encoder):
    good = [text for text in TEXTS if WORD not in text]
    return encoder.with_code(SpectrumCode(bytes=8).fit(encoder.encode(good)))


def on_openvino(encoder):
    pytest.importorskip("openvino")
    return Encoder.from_pretrained(encoder.name, pooling="mean", max_length=32, engine="openvino", dtype="float32")


pytestmark = pytest.mark.filterwarnings("ignore:A whitening:jaxwhiten.whitening.whitening.WhiteningWarning")
ENCODERS = {
    "float32": lambda e: e,
    "code": coded,
    "openvino": on_openvino,
    "openvino, code": lambda e: coded(on_openvino(e)),
}
DOORS = {
    "encode": lambda e, texts: e.encode(texts),
    "encode_stream": lambda e, texts: list(e.encode_stream(iter(texts), block_size=5)),
    "moments": lambda e, texts: e.view.moments(iter(texts)),
    "whiten": lambda e, texts: e.whiten(texts),
    "store": lambda e, texts: EmbeddingStore().encode(e, texts),
    "evaluate": lambda e, texts: evaluate(e, (texts, texts, list(range(len(texts))))),
}


@pytest.mark.parametrize("which", slow_but(ENCODERS, "openvino", "openvino, code"))
def test_an_encoder_names_the_first_text_whose_vector_is_not_finite(encoder, which, fresh_cache):
    model, good = ENCODERS[which](encoder), [text for text in TEXTS if WORD not in text]
    assert len(model.encode(good)) == len(good)
    for door in DOORS if which == "float32" else ("encode", "encode_stream"):
        with pytest.raises(NonFiniteError, match=NAMED) as found:
            DOORS[door](model, TEXTS)
        assert list(found.value.rows) == [BAD], door
    with pytest.raises(NonFiniteError, match="text 0, 'A man"):
        model.encode(TEXTS[BAD])


@pytest.mark.slow
@pytest.mark.parametrize("which", ["float32", "code"])
def test_a_corpus_names_the_line_or_skips_it(encoder, which, tmp_path):
    pytest.importorskip("pyarrow")
    model = ENCODERS[which](encoder)
    (tmp_path / "c.txt").write_text("\n".join(TEXTS) + "\n")
    how = {"part_rows": 16, "show_progress": False}
    with pytest.raises(DataError, match=r"c\.txt, line \d+: '.*': its vector"):
        embed_files([Source(str(tmp_path / "c.txt"))], tmp_path / "stopped", model, **how)
    done = embed_files([Source(str(tmp_path / "c.txt"))], tmp_path / "out", model, skip_bad=True, **how)
    dead = [json.loads(line) for line in (tmp_path / "out" / "dead-letters.jsonl").read_text().splitlines()]
    assert [row["row"] for row in dead] == [BAD + 1]
    assert done["rows"] == len(TEXTS) - 1
    ids, vectors = Parts(tmp_path / "out").all()
    assert f"c.txt:{BAD + 1}" not in ids
    good = [text for text in TEXTS if WORD not in text]
    np.testing.assert_allclose(np.asarray(vectors), np.asarray(model.encode(good)), atol=1e-5)
    table = arrow.embedded_batch(model, [{"text": text} for text in TEXTS[BAD - 1 : BAD + 1]], "text", None, ())
    assert [error is None for error in table["error"].to_pylist()] == [True, False]


ROWS = np.array([[3e19, 4e19, 0], [3e-23, 4e-23, 0], [3e38, 3e38, 3e38], [2e-38, 2e-38, 0], [0, 0, 0]], np.float32)
UNIT = [[0.6, 0.8, 0], [0.6, 0.8, 0], [3**-0.5] * 3, [0.5**0.5, 0.5**0.5, 0], [0, 0, 0]]
NOT = np.array([[np.nan, 1, 1], [1, np.inf, 1], [np.nan] * 3, [-np.inf, np.inf, 0]], np.float32)


def _graph():
    graph = Graph()
    graph.op("Identity", Normalize().to_onnx(graph, "vectors"), output="mapped")
    return graph.finish({"vectors": 3}, {"mapped": 3}, {}).SerializeToString()


def _onnx(x):
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(_graph(), providers=["CPUExecutionProvider"]).run(None, {"vectors": x})[0]


def _openvino(x):
    core = pytest.importorskip("openvino").Core()
    compiled = core.compile_model(core.read_model(_graph()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled({"vectors": x})[0]


ENGINES = {"jit": jax.jit(normalize_on_device), "step": lambda x: Normalize()(jnp.asarray(x)), "onnx": _onnx}


@pytest.mark.parametrize("engine", [*ENGINES, "openvino", "numpy"])
def test_unit_length_keeps_every_direction_and_every_nan(engine):
    scaled = {**ENGINES, "openvino": _openvino, "numpy": normalize}[engine]
    np.testing.assert_allclose(scaled(ROWS), UNIT, atol=1e-6)
    for row in NOT:
        if engine == "numpy":
            with pytest.raises(NonFiniteError):
                scaled(row[None])
        else:
            assert np.isnan(np.asarray(scaled(row[None]))).any()


@pytest.mark.parametrize("backend", ["faiss-flat", "jax"])
def test_a_mean_far_away_costs_no_neighbor(backend, tmp_path):
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((1500, 32)) @ rng.standard_normal((32, 32)) / 6
    x = (spread + 1e6 * rng.uniform(0.5, 1, 32)).astype(np.float32)
    whitening = Whitening(n_components=16).fit(x)
    z = normalize(whitening.transform(x)).astype(float)
    exact = np.argsort(-(z[:100] @ z.T), axis=1)[:, :10]
    build_index(x, backend, whitening=whitening).save(tmp_path / "index")
    found = load_index(tmp_path / "index").search(x[:100], 10)[1]
    assert np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, exact, strict=True)]) >= 0.999
