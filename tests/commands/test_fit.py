"""`jaxwhiten fit` and `export`: the whitening of the library, what it must know later, and a model that has it."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening, normalize
from tests.tiny import SENTENCES

MODEL = ("--pooling", "mean", "--max-length", 32)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def vectors(encoder, corpus):
    return encoder.encode(corpus.read_text(encoding="utf-8").splitlines())


def test_the_file_is_the_whitening_of_the_sentences(whitening_file, encoder, vectors):
    saved, expected = Whitening.load(whitening_file), Whitening(n_components=16, shrinkage="oas").fit(vectors)
    np.testing.assert_allclose(saved.transform(vectors), expected.transform(vectors), atol=1e-4)
    facts = saved.provenance
    assert (facts["n"], facts["corpus"]) == (600, "corpus.txt")
    assert (facts["fingerprint"], facts["pooling"], facts["max_length"]) == (encoder.view.fingerprint, "mean", 32)
    moments = Moments.load(whitening_file.parent / "moments.safetensors")
    np.testing.assert_allclose(moments.covariance(), np.cov(vectors.T, ddof=0), atol=1e-5)
    assert moments.provenance["fingerprint"] == encoder.view.fingerprint


def test_moments_of_parts_make_the_whole(run, tiny_model, corpus, whitening_file, tmp_path):
    lines = corpus.read_text(encoding="utf-8").splitlines()
    parts = []
    for number, part in enumerate((lines[:50], lines[50:400], lines[400:])):
        (tmp_path / f"part{number}.txt").write_text("\n".join(part), encoding="utf-8")
        parts.append(tmp_path / f"{number}.moments")
        assert (
            run("fit", tmp_path / f"part{number}.txt", "--model", tiny_model, *MODEL, "--moments", parts[-1]).code == 0
        )
    out = tmp_path / "all.moments"
    done = run("fit", *parts, "--moments", out, "--output", tmp_path / "w.safetensors", "-k", 16)
    assert done.code == 0, done.err
    merged, whole = Moments.load(out), Moments.load(whitening_file.parent / "moments.safetensors")
    assert (merged.n, merged.provenance["corpus"]) == (600, "part0.txt + part1.txt + part2.txt")
    np.testing.assert_allclose(merged.covariance(), whole.covariance(), atol=1e-5)
    assert merged.provenance["fingerprint"] == whole.provenance["fingerprint"]
    expected = Whitening.from_moments(merged, n_components=16)
    assert (Whitening.load(tmp_path / "w.safetensors").components_ == expected.components_).all()


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
