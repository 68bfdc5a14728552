"""Text to vectors: equal to the plain computation, whatever the neighbors, batch size, order or dtype."""

import itertools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxwhiten import Encoder
from jaxwhiten.engines.batching import Batch
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head import Head, run
from jaxwhiten.models import load_model
from jaxwhiten.text import TokenIds
from tests.tiny import ALONE, SENTENCES

pytestmark = pytest.mark.devices


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48)


def one_by_one(folder, sentences, names, max_length=48):
    """Each sentence alone, unpadded, straight through the model."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length)
    model, _, _ = load_model(folder)
    rows = []
    for sentence in sentences:
        ids = jnp.asarray([tokenizer.encode(sentence).ids])
        mask = jnp.ones_like(ids)
        rows.append({name: run(Head.named(name).steps, model(ids, mask), mask, ids) for name in names})
    return {name: np.concatenate([row[name] for row in rows]) for name in names}


def test_encode_equals_one_sentence_at_a_time(encoder, tiny_model):
    names = ALONE
    sentences = SENTENCES[-4:]
    expected = one_by_one(tiny_model, sentences, names)
    got = encoder.encode(SENTENCES, pooling=names)
    for name in names:
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name][-4:], expected[name], atol=1e-5, err_msg=name)


def test_one_pooling_gives_an_array_and_aliases_work(encoder):
    vectors = encoder.encode(SENTENCES)
    assert vectors.shape == (len(SENTENCES), encoder.dimension)
    np.testing.assert_array_equal(vectors, encoder.encode(SENTENCES, pooling=["last_avg"])["last_avg"])


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_batch_size_and_order_change_nothing(encoder, batch_size):
    order = np.random.default_rng(batch_size).permutation(len(SENTENCES))
    expected = encoder.encode(SENTENCES)
    got = encoder.encode([SENTENCES[i] for i in order], batch_size=batch_size)
    np.testing.assert_allclose(got, expected[order], atol=1e-5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec=None), max_size=200), min_size=1, max_size=6))
def test_any_text_is_encoded_and_depends_on_itself_only(encoder, sentences):
    together = encoder.encode(sentences)
    assert np.isfinite(together).all()
    for index in {0, len(sentences) - 1}:
        np.testing.assert_allclose(encoder.encode([sentences[index]])[0], together[index], atol=1e-5)


def test_hard_texts(encoder):
    texts = ["", "a" * 10_000, "word " * 10_000, "😀𝔘𝔫𝔦", "nul\0inside", "lone \ud800 surrogate", "\udfff"]
    vectors = encoder.encode(texts)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[5], encoder.encode(["lone � surrogate"])[0], atol=1e-5)


def test_no_sentences_no_vectors(encoder):
    assert encoder.encode([]).shape == (0, encoder.dimension)
    assert list(encoder.encode_stream([])) == []


def test_stream_gives_blocks_in_order_and_reads_lazily(encoder):
    read = itertools.count()

    def endless():
        for sentence in itertools.cycle(SENTENCES):
            next(read)
            yield sentence

    stream = encoder.encode_stream(endless(), block_size=16)
    first = [next(stream) for _ in range(3)]
    stream.close()
    assert next(read) <= 16 * 6
    everything = [s for s, _ in zip(itertools.cycle(SENTENCES), range(48), strict=False)]
    np.testing.assert_allclose(np.concatenate(first), encoder.encode(everything), atol=1e-5)


def test_stream_yields_what_came_before_a_bad_item(encoder):
    stream = encoder.encode_stream(iter(["a", "b", "c", None]), block_size=2)
    assert next(stream).shape == (2, encoder.dimension)
    with pytest.raises(InputError, match="Sentence 3: "):
        list(stream)


def test_all_devices_share_a_batch(encoder):
    assert jax.local_device_count() == 8
    tokens = TokenIds(np.ones(128, np.int32), np.full(16, 8, np.int32))
    heads = {"mean": encoder.view.with_pooling("mean").placed}
    vectors = encoder.view.core.engine.start(Batch(np.arange(16), 16, 8, 64), tokens, heads)["mean"].vectors
    shards = vectors.addressable_shards
    assert {shard.data.shape for shard in shards} == {(2, 1, encoder.dimension)}
    assert len({shard.device for shard in shards}) == 8


def test_fingerprint_follows_the_weights(encoder, tiny_model, tmp_path):
    from tests.tiny import write_model

    copy = shutil.copytree(tiny_model, tmp_path / "copy")
    assert Encoder.from_pretrained(copy, pooling="mean", max_length=48).view.fingerprint == encoder.view.fingerprint
    other = write_model(tmp_path / "other", seed=1)
    assert Encoder.from_pretrained(other, pooling="mean", max_length=48).view.fingerprint != encoder.view.fingerprint


def test_bfloat16(tiny_model, encoder):
    rough = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48, dtype="bfloat16").encode(SENTENCES)
    exact = encoder.encode(SENTENCES)
    cosine = (rough * exact).sum(1) / np.linalg.norm(rough, axis=1) / np.linalg.norm(exact, axis=1)
    assert rough.dtype == np.float32
    assert cosine.min() > 0.999


def test_bad_settings_say_what_is_valid(tiny_model, encoder, tmp_path):
    with pytest.raises(InputError, match="'mean'"):
        Encoder.from_pretrained(tiny_model, pooling="meen")
    with pytest.raises(InputError, match="64"):
        Encoder.from_pretrained(tiny_model, pooling="mean", max_length=65)
    with pytest.raises(InputError, match="bfloat16"):
        Encoder.from_pretrained(tiny_model, pooling="mean", dtype="bfloat")
    with pytest.raises(InputError, match="batch_size"):
        encoder.encode(["a"], batch_size=0)
    copy = shutil.copytree(tiny_model, tmp_path / "copy")
    (copy / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="tokenizer"):
        Encoder.from_pretrained(copy, pooling="mean")


def test_vocab_txt_is_enough(minilm, tmp_path):
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path / name)
    texts = ["A man plays a guitar.", "Élan vital; naïve café."]
    np.testing.assert_allclose(
        Encoder.from_pretrained(tmp_path, pooling="mean").encode(texts),
        Encoder.from_pretrained(minilm, pooling="mean", bare=True).encode(texts),
        atol=1e-5,
    )


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
    assert encoder.view.with_pooling("last_avg").space.pooling == "mean"
    assert encoder.view.with_pooling("cls").space.pooling == "cls"
