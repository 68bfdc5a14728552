"""An encoder that ends with a code: everything that compares vectors takes its bytes for what they stand for."""

import numpy as np
import pytest

from jaxwhiten import Encoder, ScoredPairs, Vectors, build_index, evaluate, paraphrase_mining, semantic_search
from jaxwhiten.arrays import comparable
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.metrics import cosine_pairs
from jaxwhiten.metrics import SIMILARITIES, similarity, similarity_pairwise
from jaxwhiten.search import paraphrase_mining_embeddings
from tests.sentences import generated

TEXTS = generated(200, seed=2)
QUERIES = generated(9, seed=3)


def assert_close(values, expected):
    """Equal up to the rounding of decoding: a product of 32 terms may add them in another order for other rows."""
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    plain = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    return plain.with_code(SpectrumCode(bytes=4).fit(plain.view.moments(generated(400))))


@pytest.fixture(scope="module")
def coded(encoder):
    return encoder.encode(TEXTS)


@pytest.fixture(scope="module")
def decoded(encoder, coded):
    return encoder.view.head.code.decode(np.asarray(coded))


def test_encode_gives_bytes_that_know_their_code(encoder, coded):
    code = encoder.view.head.code
    assert isinstance(coded, Vectors)
    assert coded.dtype == np.uint8
    assert coded.shape == (200, 4)
    assert encoder.view.space.code == f"spectrum-4-{encoder.view.fingerprint[:8]}"  # as files record it
    one, streamed = encoder.encode(TEXTS[0]), list(encoder.encode_stream(TEXTS, block_size=90))
    assert one.code is code
    np.testing.assert_array_equal(np.concatenate(streamed).decode(), coded.decode())
    several = encoder.with_view(encoder.view.unfitted).encode(TEXTS, pooling=["mean", "cls"], precision="binary")
    assert all(found.code.name == "binary" and found.dtype == np.int8 for found in several.values())


def test_vectors_for_a_fit_are_those_before_the_code(encoder):
    assert encoder.view.unfitted(TEXTS[:9]).dtype == np.float32
    assert encoder.view.unfitted.fingerprint == encoder.view.uncoded.fingerprint


def test_the_store_keeps_the_code(encoder, coded, tmp_path):
    for _ in range(2):  # written, then read
        found = EmbeddingStore(tmp_path).encode(encoder, TEXTS)
        assert found.code is encoder.view.head.code
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, coded)

    assert len(list(tmp_path.iterdir())) == 1
    EmbeddingStore(tmp_path).encode(encoder.with_view(encoder.view.uncoded), TEXTS)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_of_codes(encoder, coded, decoded, name):
    assert_close(similarity(coded[:9], coded, name), similarity(decoded[:9], decoded, name))
    assert_close(similarity_pairwise(coded, coded[::-1], name), similarity_pairwise(decoded, decoded[::-1], name))
    queries = encoder.view.uncoded(QUERIES)
    assert_close(similarity(queries, coded, name), similarity(queries, decoded, name))
    with pytest.raises(InputError, match="without their code"):
        similarity(np.asarray(coded), np.asarray(coded), name)


def test_codes_are_of_the_space_of_the_vectors_and_other_spaces_are_refused(encoder, coded):
    floats, other = (
        encoder.with_view(encoder.view.uncoded),
        encoder.with_view(encoder.view.unfitted).with_pooling("cls"),
    )
    vectors, others = floats.encode(TEXTS), other.encode(TEXTS)
    assert coded.space == vectors.space == floats.view.space
    cosines = cosine_pairs(coded, vectors)
    np.testing.assert_allclose(cosines, cosine_pairs(coded.decode(), vectors), atol=1e-6)
    assert cosines.mean() > 0.95
    code = SpectrumCode(bytes=4).fit(others)
    for strange in (others, code.encode(others)):
        for compare in (cosine_pairs, comparable, similarity, similarity_pairwise, semantic_search):
            for sides in ((coded, strange), (strange, coded)):
                with pytest.raises(MismatchError):
                    compare(*sides)
        with pytest.raises(MismatchError):
            encoder.view.head.code.scores(strange, coded)
    with pytest.raises(MismatchError):
        encoder.view.head.code.encode(others)
    with pytest.raises(MismatchError):
        encoder.with_code(code)
    index = build_index(coded, "jax", codes=encoder.view.head.code)
    for change in (lambda x: index.search(x, 1), index.add):
        with pytest.raises(MismatchError):
            change(others)
    assert index.search(vectors[:9], 1)[1][:, 0].tolist() == list(range(9))


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_bytes_of_sentence_transformers_are_compared_as_what_they_stand_for(encoder, precision):
    plain = encoder.with_view(encoder.view.unfitted)
    found, other = plain.encode(TEXTS, precision=precision), plain.encode(QUERIES, precision=precision)
    wanted = similarity(found.decode(), other.decode())
    np.testing.assert_array_equal(plain.similarity(found, other), wanted)
    if precision.endswith("binary"):
        bits = np.unpackbits(np.asarray(found).view(np.uint8) ^ found.code.flip, axis=1).astype(np.float32) * 2 - 1
        np.testing.assert_allclose(plain.similarity(found, found), similarity(bits, bits), atol=1e-6)


def test_evaluate_scores_a_coded_encoder_as_its_decoded_vectors(encoder, coded, decoded):
    gold = np.random.default_rng(0).random(100)
    found = evaluate(encoder, (TEXTS[:100], TEXTS[100:], gold), resamples=10)
    by_hand = evaluate(encoder, ScoredPairs(decoded[:100], decoded[100:], gold), resamples=10)
    assert found.spearman == by_hand.spearman
    assert evaluate(encoder, ScoredPairs(coded[:100], coded[100:], gold), resamples=10).spearman == found.spearman


@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_semantic_search_of_codes(encoder, coded, decoded, score):
    queries = encoder.view.uncoded(QUERIES)
    for asked, wanted in [(queries, queries), (encoder.encode(QUERIES), encoder.encode(QUERIES).decode())]:
        found = semantic_search(asked, coded, top_k=5, score_function=score)
        assert found == semantic_search(wanted, decoded, top_k=5, score_function=score)
    assert semantic_search(coded[3], coded, top_k=1, score_function="cosine")[0][0]["score"] == pytest.approx(1)
    with pytest.raises(InputError, match="without their code"):
        semantic_search(np.asarray(coded), decoded)


def test_paraphrase_mining_of_codes(encoder, coded, decoded):
    wanted = paraphrase_mining_embeddings(decoded, top_k=5)
    assert paraphrase_mining(encoder, TEXTS, top_k=5) == paraphrase_mining_embeddings(coded, top_k=5) == wanted
    with pytest.raises(InputError, match="without their code"):
        paraphrase_mining_embeddings(np.asarray(coded))


def test_an_index_of_codes_is_of_what_they_stand_for(encoder, coded, decoded):
    queries = encoder.view.uncoded(QUERIES)
    index, by_hand = build_index(coded[:150], "jax"), build_index(decoded, "jax")
    index.add(coded[150:])
    scores, rows = index.search(queries, 5)
    assert_close(scores, by_hand.search(queries, 5)[0])
    assert_close(np.take_along_axis(similarity(queries, decoded), rows, axis=1), scores)
    np.testing.assert_array_equal(index.search(coded[:9], 1)[1], by_hand.search(decoded[:9], 1)[1])
    for mistaken in (lambda x: build_index(x, "jax"), index.add, lambda x: index.search(x, 1)):
        with pytest.raises(InputError, match="without their code"):
            mistaken(np.asarray(coded))


def test_moments_of_a_coded_encoder_are_of_decoded_vectors(encoder, decoded):
    np.testing.assert_allclose(encoder.view.moments(TEXTS).mean, decoded.mean(axis=0), atol=1e-5)
