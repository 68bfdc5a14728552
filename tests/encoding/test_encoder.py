"""Text to vectors: equal to the plain computation, whatever the neighbors, batch size, order or dtype."""

import itertools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from jaxwhiten import Encoder
from jaxwhiten.engines.batching import Batch
from jaxwhiten.engines.forward import forward
from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.head import Dense, Head, write_folder
from jaxwhiten.head.pooling import Cls, Concat, Mean
from jaxwhiten.text import BulkTokenizer, TokenIds
from tests.conftest import slow_but
from tests.tiny import ALONE, SENTENCES, by_pooling

pytestmark = pytest.mark.devices


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48)


@pytest.mark.parametrize("batch_size", slow_but([1, 3, 1000], 1000))
def test_batch_size_order_devices_and_number_of_poolings_change_nothing(encoder, tiny_model, batch_size):
    order, names = np.random.default_rng(batch_size).permutation(len(SENTENCES)), [*ALONE, "last_avg"]
    alone = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48, device=jax.devices()[0])
    got = by_pooling(encoder, [SENTENCES[i] for i in order], names, batch_size)
    expected = by_pooling(alone, SENTENCES, names)
    for name in names:
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name], expected[name][order], atol=1e-5, err_msg=name)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec=None), max_size=200), min_size=1, max_size=6))
@example(["", "a" * 10_000, "word " * 10_000, "😀𝔘𝔫𝔦", "nul\0inside", "lone \ud800 surrogate", "\udfff"])
def test_any_text_is_encoded_and_depends_on_itself_only(encoder, sentences):
    together = encoder.encode(sentences)
    assert np.isfinite(together).all()
    for index in {0, len(sentences) - 1}:
        np.testing.assert_allclose(encoder.encode([sentences[index]])[0], together[index], atol=1e-5)


def test_no_sentences_no_vectors(encoder):
    assert encoder.encode([]).shape == (0, encoder.dimension)
    assert list(encoder.encode_stream([])) == []


def test_all_devices_share_a_batch(encoder):
    assert jax.local_device_count() == 8
    tokens = TokenIds(np.ones(128, np.int32), np.full(16, 8, np.int32))
    heads = {"mean": encoder.view.with_pooling("mean").placed}
    vectors = encoder.view.core.engine.start(Batch(np.arange(16), 16, 8, 64), tokens, heads)["mean"].vectors
    shards = vectors.addressable_shards
    assert {shard.data.shape for shard in shards} == {(2, 1, encoder.dimension)}
    assert len({shard.device for shard in shards}) == 8


MISTAKES = {  # what the message says, and what is asked
    "'mean'": {"pooling": "meen"},
    "64": {"max_length": 65},
    "this model has": {"pooling": "layers:0,4"},
    "33 columns": {"truncate_dim": 33},
    "maxsim": {"similarity_fn_name": "maxsim"},
}
OF_ENCODE = {
    "batch_size": {"batch_size": 0},
    "this model has": {"pooling": "layers:4"},
    "'auto'": {"pooling": "auto"},
    "querry": {"prompt_name": "querry"},
    "32 dimensions": {"truncate_dim": 33},
}


@pytest.mark.parametrize("words", MISTAKES)
def test_settings_that_cannot_be_are_refused(tiny_model, words):
    with pytest.raises(InputError, match=words):
        Encoder.from_pretrained(tiny_model, **{"pooling": "mean"} | MISTAKES[words])


@pytest.mark.parametrize("words", OF_ENCODE)
def test_options_of_encode_that_cannot_be_are_refused_whatever_the_texts(encoder, words):
    how = OF_ENCODE[words]
    for texts in (["a"], []):
        with pytest.raises(InputError, match=words):
            encoder.encode(texts, **how)
    with pytest.raises(InputError, match=words):
        next(encoder.encode_stream(["a"], **how))


def test_vocab_txt_is_enough(minilm, tmp_path):
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path / name)
    texts = ["A man plays a guitar.", "Élan vital; naïve café."]
    found, expected = (BulkTokenizer(folder, 32)(texts) for folder in (tmp_path, minilm))
    np.testing.assert_array_equal(found.flat, expected.flat)


def test_an_encoder_is_tuned_as_told_as_its_folder_records_or_by_its_vectors(encoder, tiny_model, tmp_path):
    assert not encoder.view.tuned
    told = Encoder.from_pretrained(tiny_model, pooling="mean", tuned=True)
    assert told.view.tuned
    assert told.with_pooling("cls").view.tuned
    told.save(tmp_path / "tuned")
    encoder.save(tmp_path / "judged")
    assert Encoder.from_pretrained(tmp_path / "tuned").view.tuned
    assert not Encoder.from_pretrained(tmp_path / "tuned", tuned=False).view.tuned
    assert Encoder.from_pretrained(tmp_path / "judged").view.core.tuned is None
    encoder.with_view(encoder.view.judged()).save(tmp_path / "recorded")
    assert Encoder.from_pretrained(tmp_path / "recorded").view.core.tuned is False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
@pytest.mark.parametrize("pooling", ["mean", "first_last_avg"])
def test_the_encoder_in_the_package_is_not_tuned_with_or_without_a_whitening(pooling):
    tiny = Encoder.from_pretrained("jaxwhiten-tiny", pooling=pooling)
    record = tiny.view.provenance()
    assert (record["tuned"], 9 < record["participation_ratio"] < 14) == (False, True)
    whitened = tiny.whiten(SENTENCES * 4, k=2)
    assert whitened.view.participation_ratio == record["participation_ratio"]
    assert whitened.view.head.whitening.gamma == 1.0


def test_what_is_kept_of_how_vectors_were_made(encoder, tiny_model):
    expected = {"model": str(tiny_model), "fingerprint": encoder.view.fingerprint, "pooling": "mean", "max_length": 48}
    prompts = {"prompt": "", "prompts": {"query": "", "document": ""}}
    expected |= {"dtype": "float32", "engine": "jax", "dimension": 32, "head": encoder.view.head.fingerprint, **prompts}
    assert encoder.view.space.record() == expected
    judged = {"tuned": False, "participation_ratio": pytest.approx(6.9, abs=0.5)}
    assert encoder.view.provenance() == expected | judged
    assert encoder.view.with_pooling("last_avg").space == encoder.view.space


def test_nothing_is_computed_twice_or_for_nothing(encoder):
    """Each layer's mean is taken once, however many poolings share it; padding passes no dense layer."""
    graph = encoder.view.core.engine._graph
    weights = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in encoder.view.core.engine._weights]
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("data",))

    def flops(names, tokens=None):
        ids, lengths = jnp.ones((16, 1, 32), jnp.int32), jnp.full((16, 1), 32)
        arguments = (graph, weights, ids, lengths, tuple(Head.named(name).steps for name in names), tokens, mesh, None)
        cost = forward.lower(*arguments).compile().cost_analysis()
        return (cost[0] if isinstance(cost, list) else cost)["flops"]

    grid = tuple(f"layers:{i}+{j}" for i, j in itertools.combinations(range(3), 2))
    states = 16 * 32 * 32  # numbers in a hidden state
    assert flops(grid) - flops(tuple(f"layers:{i}" for i in range(3))) < states
    assert flops(("layers:1",)) < 0.6 * flops(("layers:2",))  # layers that no pooling reads cost nothing
    assert flops(("mean",), tokens=128) < 0.6 * flops(("mean",))  # of 512 positions; attention keeps them all


def test_a_layer_of_the_folder_that_a_pooling_does_not_fit(encoder, tmp_path):
    layer = Dense(2 * np.eye(8, 64, dtype=np.float32), np.zeros(8, np.float32), None, "Identity")
    head = Head.of((Concat((Cls(), Mean())), layer))
    folder = write_folder(tmp_path / "model", encoder.module, encoder.view.core.tokenizer, head)
    own = Encoder.from_pretrained(folder)
    for ask in (lambda **how: Encoder.from_pretrained(folder, **how), lambda **how: own.encode("a", **how)):
        with pytest.raises(MismatchError, match=r"64 dimensions, got 32.*omit pooling='cls', or .*bare=True"):
            ask(pooling="cls")
    assert Encoder.from_pretrained(folder, pooling="cls", bare=True).dimension == 32
