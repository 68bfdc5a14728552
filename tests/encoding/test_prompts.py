"""Prompts of a folder: vectors equal to SentenceTransformer's, whatever puts the prompt there."""

import contextlib
import functools
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, build_index, load_index
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.encoding.encoder import settings_of
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head import Normalize
from tests.encoding.test_folder_settings import as_sentence_transformer
from tests.sentences import generated
from tests.text.test_classes import update
from tests.tiny import SENTENCES

TEXTS = [SENTENCES[i] for i in (0, 2, 3, 7, 8)]  # among them the empty one: few, so that few shapes are compiled
PROMPTS = {"query": "Music or water: ", "passage": "salt. ", "topic": "Two dogs"}


def write_folder(tiny_model, folder, settings, **pooling):
    """A sentence-transformers folder with these settings."""
    folder = as_sentence_transformer(shutil.copytree(tiny_model, folder))
    update(folder / "1_Pooling" / "config.json", **pooling)
    update(folder / "sentence_bert_config.json", max_seq_length=24)
    update(folder / "config_sentence_transformers.json", **settings)
    return folder


pytestmark = pytest.mark.filterwarnings("ignore:.*but searches and codes rank by cosine")
read = functools.partial(Encoder.from_pretrained, device="cpu:0")


def theirs(folder, **options):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    return library.SentenceTransformer(str(folder), device="cpu", **options)


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    settings = {"prompts": PROMPTS, "default_prompt_name": "topic", "similarity_fn_name": "dot"}
    return write_folder(tiny_model, tmp_path_factory.mktemp("prompts") / "model", settings)


def test_passage_is_the_prompt_of_documents_where_there_is_no_other(folder, tiny_model, tmp_path):
    """sentence-transformers promises it, and takes an empty prompt (seen in 6.2)."""
    encoder = read(folder)
    documents = encoder.encode_document(TEXTS)
    np.testing.assert_allclose(documents, encoder.encode(TEXTS, prompt_name="passage"), atol=1e-5)
    assert np.abs(documents - encoder.encode(TEXTS)).max() > 0.01
    empty = read(write_folder(tiny_model, tmp_path / "model", {"prompts": {"document": "", "passage": "p: "}}))
    np.testing.assert_allclose(empty.encode_document(TEXTS), empty.encode(TEXTS), atol=1e-5)


def test_a_head_s_own_prompt_is_saved(tiny_model, tmp_path):
    plain = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    encoder = plain.with_view(plain.view.with_head(plain.view.head.with_prompt("Music: ")))
    vectors = encoder.encode(TEXTS)
    assert np.abs(vectors - plain.encode(TEXTS)).max() > 0.01
    np.testing.assert_allclose(read(encoder.save(tmp_path / "own")).encode(TEXTS), vectors, atol=1e-6)


def test_the_length_of_a_prompt_compiles_nothing(tiny_model, tmp_path):
    settings = {"prompts": {"query": "a: ", "document": "a b c: "}}
    folder = write_folder(tiny_model, tmp_path / "model", settings, include_prompt=False)
    encoder = read(folder)
    encoder.encode_query("a")
    (before,) = encoder.view.core.engine._compiled
    encoder.encode_document("a")
    assert list(encoder.view.core.engine._compiled) == [before]


@pytest.mark.usefixtures("no_advice")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("similarity", "unit_length"), [("dot", False), ("dot", True), ("cosine", False)])
def test_a_folder_of_another_similarity_is_told_what_searches_rank_by(tiny_model, tmp_path, similarity, unit_length):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", similarity_fn_name=similarity)
    folder = (encoder.with_view(encoder.view.then(Normalize())) if unit_length else encoder).save(tmp_path / "model")
    told = similarity == "dot" and not unit_length
    with pytest.warns(UserWarning, match="'dot'.*rank by cosine") if told else contextlib.nullcontext():
        assert settings_of(read(folder)).similarity_fn_name == similarity


def test_a_caller_has_the_last_word(folder, tiny_model, tmp_path):
    options = {"prompts": {"topic": "Water ", "other": "Why "}, "default_prompt_name": "other"}
    encoder, peer = read(folder, **options), theirs(folder, **options)
    for name in (None, "topic", "query", "other"):
        got, wanted = (model.encode(TEXTS, prompt_name=name) for model in (encoder, peer))
        np.testing.assert_allclose(got, wanted, atol=1e-5, err_msg=str(name))


def test_a_caller_s_truncate_dim_takes_the_place_of_the_folder_s(tiny_model, tmp_path):
    folder = write_folder(tiny_model, tmp_path / "model", {"truncate_dim": 4})
    other = read(folder, truncate_dim=9)
    saved = read(other.save(tmp_path / "out"))
    assert (read(folder).dimension, other.dimension, saved.dimension) == (4, 9, 9)
    assert saved.view.fingerprint == other.view.fingerprint


def test_encodings_and_stores_tell_prompts_apart(folder, tmp_path):
    encoder, store = read(folder), EmbeddingStore(tmp_path)
    assert encoder.view.space.prompt == PROMPTS["topic"]
    assert encoder.view.space.prompts == {"query": PROMPTS["query"], "document": PROMPTS["passage"]}
    assert encoder.view.with_prompt(PROMPTS["topic"]).space == encoder.view.space
    for prompt in (None, "", "a ", PROMPTS["topic"]):
        vectors = store.encode(encoder, TEXTS, prompt=prompt)
        np.testing.assert_allclose(vectors, encoder.encode(TEXTS, prompt=prompt), atol=1e-5, err_msg=str(prompt))
    assert len(list(tmp_path.iterdir())) == 3  # the default prompt is the default
    assert read(folder, default_prompt_name="query").view.fingerprint != encoder.view.fingerprint


@pytest.mark.parametrize("prompts", [{"query": "Why "}, {"query": "Why ", "document": "Water "}, {"topic": "Why "}])
def test_a_search_of_a_text_is_that_of_its_vector_with_the_prompt_of_queries(tiny_model, tmp_path, prompts):
    """In memory, loaded, and made of vectors; with the default prompt, if there is no other, a text finds itself."""
    default = "topic" if "topic" in prompts else None
    encoder = read(tiny_model, pooling="mean", prompts=prompts, default_prompt_name=default, tuned=True)
    texts, codes = [*TEXTS, *generated(40)], {"codes": "int8", "rescore": "float16"} if default else {}
    index = encoder.index(texts, backend="jax", **codes)
    index.save(tmp_path / "docs.db")
    loaded = load_index(tmp_path / "docs.db")
    given = build_index(encoder.documents(texts), "jax", documents=texts, **codes)
    query = np.asarray(encoder.queries([texts[4]]))
    for each in (index, loaded):
        hits, (scores, ids) = each.search(texts[4], k=3), each.search(query, 3)
        assert [hit.id for hit in hits] == ids[0].tolist()
        for expected in (scores, given.search(query, 3)[0]):
            np.testing.assert_allclose([hit.score for hit in hits], expected[0], atol=1e-5)
    [hit] = index.search(TEXTS[4], k=1)
    assert not default or (hit.id, hit.score) == (4, pytest.approx(1, abs=1e-3))
    loaded.add(["It rains."])


def test_a_pooling_with_a_prompt_of_its_own_takes_no_other(folder):
    import eval.poolings  # noqa: F401 (adds promptbert)

    with pytest.raises(InputError, match="no prompt"):
        read(folder).encode(TEXTS, pooling="promptbert", prompt="a ")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts": ["query"]}, "prompts"),
        ({"prompts": {"query": 3}}, "query"),
        ({"default_prompt_name": "missing"}, "Unknown prompt 'missing'"),
        ({"similarity_fn_name": []}, "similarity_fn_name"),
        ({"truncate_dim": 0}, "truncate_dim"),
    ],
)
def test_settings_that_cannot_be_are_named(tiny_model, tmp_path, settings, message):
    folder = write_folder(tiny_model, tmp_path / "model", settings)
    with pytest.raises(ModelError, match=f"config_sentence_transformers.json.*{message}"):
        read(folder)
