"""The folder is the one artifact: jaxwhiten, sentence-transformers and ONNX Runtime give the same whitened vectors."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.errors import InputError
from jaxwhiten.export import save_onnx
from jaxwhiten.head.head import PoolingWarning
from tests.conftest import slow_but
from tests.graphs import run
from tests.tiny import FAMILIES, SENTENCES, write_model

POOLINGS = ["cls", "mean", "first_last_avg", "layers:0+2+2", "lasttoken", "weightedmean", "max"]
POOLINGS += ["embeddings_last_avg", "last2avg", "layers:-1"]
LENGTH = 40


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def model(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("family") / request.param, **FAMILIES[request.param])


@pytest.fixture(scope="module", params=slow_but(POOLINGS, "cls", "first_last_avg", "lasttoken"))
def whitened(request, model, tmp_path_factory):
    """A whitened encoder, what it has to give, and the folder that it wrote."""
    encoder = Encoder.from_pretrained(model, pooling=request.param, max_length=LENGTH)
    rng = np.random.default_rng(0)
    rows = encoder.encode(SENTENCES).mean(0) + rng.normal(size=(2000, 32)) * np.linspace(1, 0.1, 32)
    whitening = Whitening(n_components=12, beta=0.9, gamma=0.8).fit(rows.astype(np.float32))
    wanted = normalize(whitening.transform(encoder.encode(SENTENCES)))
    encoder = encoder.with_whitening(whitening)
    return encoder, wanted, encoder.save(tmp_path_factory.mktemp("whitened") / "out")


def test_the_folder_gives_the_vectors_of_the_encoder(whitened):
    encoder, wanted, folder = whitened
    np.testing.assert_allclose(encoder.encode(SENTENCES), wanted, atol=1e-5)
    again = Encoder.from_pretrained(folder)
    np.testing.assert_allclose(again.encode(SENTENCES), wanted, atol=1e-5)
    assert (again.max_length, again.dimension, again.view.head.name) == (LENGTH, 12, "auto")
    found = again.view.head.whitening
    assert (found.n_components, found.beta, found.gamma) == (12, 0.9, 0.8)


def test_sentence_transformers_reads_the_folder(whitened):
    _, wanted, folder = whitened
    library = pytest.importorskip("sentence_transformers")
    np.testing.assert_allclose(
        library.SentenceTransformer(str(folder), device="cpu").encode(SENTENCES), wanted, atol=1e-5
    )


def test_onnx_runtime_reads_the_graph_of_the_folder(whitened, tmp_path):
    _, wanted, folder = whitened
    pytest.importorskip("onnxruntime")
    out = save_onnx(tmp_path / "onnx", Encoder.from_pretrained(folder))
    np.testing.assert_allclose(run(out, max_length=LENGTH), wanted, atol=1e-5)


def test_whiten_fits_and_shares_the_weights(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24)
    texts = [f"{a} {b}" for a in SENTENCES for b in SENTENCES]
    small = encoder.whiten(texts, k=4)  # without a warning: 100 rows are enough for 4 columns
    with pytest.warns(UserWarning, match="fitted on 100 rows"):
        encoder.whiten(texts, k=16, shrinkage=None)
    expected = Whitening(n_components=4, shrinkage="oas").fit(encoder.encode(texts))
    wanted = normalize(expected.transform(encoder.encode(SENTENCES)))
    np.testing.assert_allclose(small.encode(SENTENCES), wanted, atol=1e-4)
    assert small.view.core.engine is encoder.view.core.engine
    assert (encoder.dimension, small.dimension) == (32, 4)
    assert small.view.fingerprint != encoder.view.fingerprint
    assert small.view.head.whitening.provenance["fingerprint"] == encoder.view.fingerprint
    fewer = encoder.with_whitening(expected.with_params(n_components=2, gamma=0.5), normalize=False)
    changed = expected.with_params(n_components=2, gamma=0.5)
    np.testing.assert_allclose(fewer.encode(SENTENCES), changed.transform(encoder.encode(SENTENCES)), atol=1e-4)
    with pytest.warns(PoolingWarning, match="omits"):
        both = small.encode(SENTENCES, pooling=["auto", "mean", "cls"])
    assert [x.shape[1] for x in both.values()] == [4, 4, 32]


def test_the_model_s_own_folder_is_not_written_over(tiny_model):
    with pytest.raises(InputError, match="own folder"):
        Encoder.from_pretrained(tiny_model, pooling="mean").save(tiny_model)
