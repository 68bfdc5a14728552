"""`jaxwhiten export`: the folders of `jaxwhiten.export`, of an encoder with a saved whitening."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from tests.tiny import SENTENCES

MODEL = ("--pooling", "mean", "--max-length", 32)


def test_a_whitening_becomes_part_of_a_model(run, tiny_model, whitening_file, tmp_path):
    done = run("export", "--model", tiny_model, *MODEL, "--whitening", whitening_file, "--output", tmp_path / "out")
    assert (done.code, "sentence-transformers folder" in done.out) == (0, True), done.err
    vectors = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).encode(SENTENCES)
    wanted = normalize(Whitening.load(whitening_file).transform(vectors))
    np.testing.assert_allclose(Encoder.from_pretrained(tmp_path / "out").encode(SENTENCES), wanted, atol=1e-5)


def test_faiss_needs_no_model(run, whitening_file, tmp_path):
    faiss = pytest.importorskip("faiss")
    done = run("export", "--format", "faiss", "--whitening", whitening_file, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    assert faiss.read_VectorTransform(str(tmp_path / "out" / "linear.vt")).d_out == 16


def test_onnx_has_the_whitening(run, tiny_model, whitening_file, tmp_path):
    onnx = pytest.importorskip("onnx")
    words = ("--whitening", whitening_file, "--format", "onnx", "--output", tmp_path / "out")
    assert run("export", "--model", tiny_model, *MODEL, *words).code == 0
    (output,) = onnx.load(str(tmp_path / "out" / "model.onnx")).graph.output
    assert output.type.tensor_type.shape.dim[1].dim_value == 16
    assert (tmp_path / "out" / "tokenizer.json").exists()
