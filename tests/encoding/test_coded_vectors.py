"""An encoder that ends with a code: everything that compares vectors takes its bytes for what they represent."""

import functools

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, ScoredPairs, Vectors, build_index, evaluate, paraphrase_mining, semantic_search
from jaxwhiten.arrays import as_floats
from jaxwhiten.codes import Int8, SpectrumCode, make_code
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.metrics import SIMILARITIES, cosine_pairs, similarity, similarity_pairwise
from jaxwhiten.search import paraphrase_mining_embeddings
from jaxwhiten.views import view
from tests.sentences import generated

TEXTS = generated(40, seed=2)
PRECISIONS = ["int8", "uint8", "binary", "ubinary"]


@pytest.fixture(scope="module")
def encoder(tiny_model):
    plain = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    return plain.with_code(SpectrumCode(bytes=4).fit(plain.view.moments(generated(400))))


@pytest.fixture(scope="module")
def coded(encoder):
    return encoder.encode(TEXTS)


@pytest.fixture(scope="module")
def floats(encoder):
    return encoder.view.uncoded(TEXTS)


def test_encode_gives_bytes_that_know_their_code(encoder, coded, floats, tmp_path):
    assert isinstance(coded, Vectors)
    assert (coded.dtype, coded.shape, coded.space) == (np.uint8, (40, 4), encoder.view.uncoded.space)
    assert encoder.view.space.code == f"spectrum-4-{encoder.view.fingerprint[:8]}"  # as files record it
    stored = [EmbeddingStore(tmp_path).encode(encoder, TEXTS) for _ in range(2)]  # written, then read
    stored += [np.concatenate(list(encoder.encode_stream(TEXTS, block_size=9)))]
    for found in stored:
        assert found.code is encoder.view.head.code
        np.testing.assert_array_equal(found, coded)
    assert encoder.encode(TEXTS[0]).code is encoder.view.head.code
    EmbeddingStore(tmp_path).encode(encoder.with_view(encoder.view.uncoded), TEXTS)
    assert len(list(tmp_path.iterdir())) == 2
    assert cosine_pairs(coded, floats).mean() > 0.95
    assert encoder.view.unfitted(TEXTS).dtype == np.float32


def test_moments_of_texts_are_those_of_what_codes_represent(encoder, coded, monkeypatch):
    monkeypatch.setattr(view, "BLOCK", 16)
    found, expected = encoder.view.moments(iter(TEXTS)), Moments().update(coded.decode())
    assert found.n == expected.n
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(found.M2, expected.M2, atol=1e-4)


def scores(hits):
    return [[hit["score"] for hit in row] for row in hits]


def in_an_index(queries, documents):
    index = build_index(documents[:30], "jax")
    index.add(documents[30:])
    return index.search(queries, 5)[0]


COMPARED = {
    **{f"similarity, {name}": functools.partial(similarity, name=name) for name in SIMILARITIES},
    **{f"of pairs, {name}": functools.partial(similarity_pairwise, name=name) for name in SIMILARITIES},
    "cosines": cosine_pairs,
    "search": lambda a, b: scores(semantic_search(a, b, top_k=5, score_function="cosine")),
    "search by products": lambda a, b: scores(semantic_search(a, b, top_k=5, score_function="dot")),
    "an index": in_an_index,
}


@pytest.mark.parametrize("name", COMPARED)
def test_codes_are_compared_as_what_they_represent(encoder, coded, floats, name):
    compare, decoded = COMPARED[name], coded.decode()
    for queries in (coded[::-1], floats[::-1]):
        found, wanted = compare(queries, coded), compare(as_floats(queries), decoded)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="without their code"):
        compare(floats, np.asarray(coded))
    others = encoder.with_view(encoder.view.unfitted).with_pooling("cls").encode(TEXTS)
    for strange in (others, Int8().fit(others).encode(others)):
        for sides in ((coded, strange), (strange, coded)):
            with pytest.raises(MismatchError):
                compare(*sides)


def test_codes_are_evaluated_and_mined(encoder, coded):
    gold = np.random.default_rng(0).random(20)
    decoded = coded.decode()
    found = evaluate(encoder, (TEXTS[:20], TEXTS[20:], gold), resamples=10)
    assert found.spearman == evaluate(encoder, ScoredPairs(decoded[:20], decoded[20:], gold), resamples=10).spearman
    wanted = paraphrase_mining_embeddings(decoded, top_k=5)
    assert paraphrase_mining(encoder, TEXTS, top_k=5) == paraphrase_mining_embeddings(coded, top_k=5) == wanted


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_precision_gives_the_bytes_of_its_code(encoder, precision):
    plain = encoder.with_view(encoder.view.unfitted)
    found, vectors = plain.encode(TEXTS, precision=precision), plain.encode(TEXTS)
    wanted = np.asarray(make_code(precision).fit(vectors).encode(vectors))
    assert found.dtype == found.code.dtype
    np.testing.assert_array_equal(found.view(np.uint8), wanted)
    np.testing.assert_array_equal(plain.similarity(found, found[:9]), similarity(found.decode(), found[:9].decode()))


def test_a_fitted_code_is_a_precision(encoder, coded):
    plain = encoder.with_view(encoder.view.unfitted)
    np.testing.assert_array_equal(plain.encode(TEXTS, precision=encoder.view.head.code), coded)
    np.testing.assert_array_equal(encoder.encode(TEXTS, precision="float32"), encoder.view.uncoded(TEXTS))
    one = plain.encode(TEXTS[:1], precision=encoder.view.head.code)
    np.testing.assert_array_equal(one, coded[:1])
    for precision, words in (("ubinry", "'ubinary'"), ("int8", "at least two sentences")):
        with pytest.raises(InputError, match=words):
            plain.encode(TEXTS[:1], precision=precision)
