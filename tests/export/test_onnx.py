"""ONNX Runtime on the exported graph gives the vectors of `Encoder`, for every family, pooling, batch and length."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.codes import make_code
from jaxwhiten.export import save_onnx
from jaxwhiten.head import Normalize
from tests.graphs import run
from tests.tiny import FAMILIES, SENTENCES, write_model

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def whitening():
    rng = np.random.default_rng(0)
    return Whitening(n_components=12, beta=0.9, gamma=0.8).fit(rng.normal(size=(2000, 32)) + rng.normal(size=32))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(tmp_path, whitening, family):
    model = write_model(tmp_path / "model", **FAMILIES[family])
    encoder = Encoder.from_pretrained(model, pooling="first_last_avg", max_length=24)
    vectors = encoder.encode(SENTENCES)
    out = save_onnx(tmp_path / "out", encoder)
    np.testing.assert_allclose(run(out), vectors, atol=1e-4)
    out = save_onnx(tmp_path / "white", encoder.with_whitening(whitening))
    np.testing.assert_allclose(run(out), normalize(whitening.transform(vectors)), atol=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "layers:0+1"])
def test_poolings(tiny_model, tmp_path, pooling):
    encoder = Encoder.from_pretrained(tiny_model, pooling=pooling, max_length=24)
    out, vectors = save_onnx(tmp_path / "out", encoder), encoder.encode(SENTENCES)
    np.testing.assert_allclose(run(out), vectors, atol=1e-4)
    np.testing.assert_allclose(run(out, SENTENCES[:1]), vectors[:1], atol=1e-4)


def test_the_real_minilm(minilm, tmp_path):
    encoder = Encoder.from_pretrained(minilm, pooling="auto", max_length=64)
    out = save_onnx(tmp_path / "out", encoder)
    np.testing.assert_allclose(run(out, max_length=64), encoder.encode(SENTENCES), atol=1e-5)


@pytest.mark.parametrize("name", ["spectrum", "int8", "ubinary", "binary"])
def test_a_code_at_the_end_gives_its_bytes(tiny_model, tmp_path, name):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24).with_view(
        Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24).view.then(Normalize())
    )
    found = np.asarray(encoder.encode(SENTENCES))
    rows = (found.mean(0) + np.random.default_rng(0).normal(size=(800, 32)) * found.std(0)).astype(np.float32)
    coded = encoder.with_code(make_code(name, **({"bytes": 6} if name == "spectrum" else {})).fit(rows))
    codes = run(save_onnx(tmp_path / "out", coded))
    assert codes.dtype == np.uint8
    wanted = coded.encode(SENTENCES)
    assert codes.shape == wanted.shape
    assert (codes != wanted).mean() < 0.02  # values within rounding of a level
    lost, least = (np.linalg.norm(coded.view.head.code.decode(x) - found, axis=1) for x in (codes, wanted))
    np.testing.assert_allclose(lost, least, atol=1e-5)
