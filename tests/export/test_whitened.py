"""Whitened models in other libraries: sentence-transformers, FAISS and transformers give the vectors of jaxwhiten."""

import re

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.export import export_sentence_transformer, save_faiss
from tests.conftest import slow_but
from tests.tiny import SENTENCES


@pytest.fixture(scope="module")
def whitening():
    """Of rows around the vectors of the tiny model, so that no direction is empty."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 32)) * np.linspace(1, 0.1, 32) + rng.normal(size=32)
    return Whitening(n_components=12, beta=0.9, gamma=0.8).fit(x.astype(np.float32))


def test_what_a_folder_does_already_comes_before_the_whitening(tiny_model, tmp_path, whitening):
    encoder = Encoder.from_pretrained(tiny_model, pooling="last2avg", max_length=24)
    first = Encoder.from_pretrained(export_sentence_transformer(tmp_path / "first", encoder.with_whitening(whitening)))
    second = Whitening(n_components=5).fit(np.random.default_rng(1).normal(size=(300, 12)).astype(np.float32))
    out = export_sentence_transformer(tmp_path / "out", first.with_whitening(second))
    vectors = normalize(whitening.transform(encoder.encode(SENTENCES)))
    wanted = normalize(second.transform(vectors))
    np.testing.assert_allclose(Encoder.from_pretrained(out).encode(SENTENCES), wanted, atol=1e-5)
    peer = pytest.importorskip("sentence_transformers")
    theirs = peer.SentenceTransformer(str(out), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(theirs, wanted, atol=1e-5)


def test_faiss_whitens_and_searches(tmp_path, whitening):
    faiss = pytest.importorskip("faiss")
    save_faiss(tmp_path / "out", whitening)
    x = np.random.default_rng(2).normal(size=(50, 32)).astype(np.float32)
    y = faiss.read_VectorTransform(str(tmp_path / "out" / "centering.vt")).apply(x)
    y = faiss.read_VectorTransform(str(tmp_path / "out" / "linear.vt")).apply(y)
    np.testing.assert_allclose(y, whitening.transform(x), atol=1e-5)
    index = faiss.read_index(str(tmp_path / "out" / "index.faiss"))
    assert (index.d, index.ntotal) == (32, 0)
    index.add(x)
    scores, ids = index.search(x, 50)
    z = normalize(whitening.transform(x))
    np.testing.assert_array_equal(ids[:, 0], np.arange(50))
    np.testing.assert_allclose(scores, np.take_along_axis(z @ z.T, ids, axis=1), atol=1e-5)


@pytest.mark.parametrize("pooling", slow_but(["mean", "cls", "layers:1+1+2"], "layers:1+1+2"))
def test_every_snippet_of_the_card_gives_the_same_vectors(tiny_model, tmp_path, whitening, pooling):
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    encoder = Encoder.from_pretrained(tiny_model, pooling=pooling, max_length=24)
    out = export_sentence_transformer(
        tmp_path / "out", encoder.with_whitening(whitening), scores={"STS-B test": 71.318}
    )
    wanted = normalize(whitening.transform(encoder.encode(SENTENCES)))
    card = (out / "README.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert len(snippets) == 2
    for code in snippets:
        names = {}
        with torch.random.fork_rng():
            exec(code.replace("FOLDER", str(out)).replace('["A sentence."]', repr(SENTENCES)), names)
        np.testing.assert_allclose(np.asarray(names["vectors"]), wanted, atol=1e-5)


def test_the_snippet_of_a_coded_card_compares_queries_with_decoded_documents(tiny_model, tmp_path):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24)
    rows = np.random.default_rng(0).normal(size=(400, 32)).astype(np.float32) + encoder.encode(SENTENCES).mean(axis=0)
    out = export_sentence_transformer(tmp_path / "out", encoder.with_code(SpectrumCode(bytes=8).fit(rows)))
    card, names = (out / "README.md").read_text(encoding="utf-8"), {}
    snippet = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)[0].replace("FOLDER", str(out))
    exec(snippet.replace('["A sentence."]', repr(SENTENCES)).replace('["A question?"]', repr(SENTENCES[:3])), names)
    decoded = normalize(Encoder.from_pretrained(out).view.head.code.decode(names["documents"]))
    cosines = normalize(np.asarray(encoder.encode(SENTENCES[:3]))) @ decoded.T
    np.testing.assert_allclose(names["scores"], cosines, atol=1e-5)
