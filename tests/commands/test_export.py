"""`jaxwhiten export`: the folders of `jaxwhiten.export`, and a whitening that does not belong is refused."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from tests.tiny import SENTENCES

MODEL = ("--pooling", "mean", "--max-length", 32)


@pytest.fixture(scope="module")
def wanted(tiny_model, whitening_file):
    vectors = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).encode(SENTENCES)
    return normalize(Whitening.load(whitening_file).transform(vectors))


@pytest.mark.parametrize("format", ["sentence-transformers", None])
def test_folders(run, tiny_model, whitening_file, tmp_path, wanted, format):
    library = pytest.importorskip("sentence_transformers")
    words = ("--whitening", whitening_file, "--output", tmp_path / "out")
    words += ("--format", format) if format else ()
    done = run("export", "--model", tiny_model, *MODEL, *words)
    assert (done.code, "sentence-transformers folder" in done.out) == (0, True), done.err
    peer = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(peer.encode(SENTENCES), wanted, atol=1e-5)
    assert (tmp_path / "out" / "README.md").exists()


def test_faiss_needs_no_model(run, whitening_file, tmp_path):
    faiss = pytest.importorskip("faiss")
    done = run("export", "--format", "faiss", "--whitening", whitening_file, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    assert faiss.read_VectorTransform(str(tmp_path / "out" / "linear.vt")).d_out == 16


@pytest.mark.parametrize("whitened", [True, False])
def test_onnx(run, tiny_model, whitening_file, tmp_path, wanted, whitened):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from tokenizers import Tokenizer

    if not whitened:
        wanted = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).encode(SENTENCES)
    words = ("--whitening", whitening_file) if whitened else ()
    done = run("export", "--model", tiny_model, *MODEL, *words, "--format", "onnx", "--output", tmp_path / "out")
    assert done.code == 0, done.err
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(SENTENCES)
    inputs = {"input_ids": [row.ids for row in rows], "attention_mask": [row.attention_mask for row in rows]}
    session = runtime.InferenceSession(str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: np.array(value)[:, :32] for name, value in inputs.items()})
    short = [len(row.tokens) - row.tokens.count("[PAD]") <= 32 for row in rows]
    assert sum(short) >= 8
    np.testing.assert_allclose(found[short], wanted[short], atol=1e-4)
