"""Static encoders: one row per token and their mean, in folders that sentence-transformers and model2vec read, too."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxwhiten import Encoder
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head import Normalize
from jaxwhiten.models import StaticEncoder, load_model
from tests.tiny import SENTENCES, by_pooling

WIDTH = 16
TEXTS = [*SENTENCES, "語 and a man", "語"]  # with a token that is not in the vocabulary, and without any other


@pytest.fixture(scope="module")
def static(tiny_model):
    table = np.random.default_rng(0).standard_normal((200, WIDTH)).astype(np.float32)
    table[1] = 0.0  # [UNK], which model2vec leaves out
    encoder = Encoder.from_module(StaticEncoder(table), tiny_model, max_length=100, name="static")
    return encoder.with_view(encoder.view.then(Normalize()))


@pytest.fixture(scope="module")
def folder(static, tmp_path_factory):
    return static.save(tmp_path_factory.mktemp("static") / "model")


def test_vectors_are_means_of_rows(static, folder):
    """By a gather, and by the compiled forward pass; without special tokens."""
    bare, texts = Encoder.from_pretrained(folder, pooling="mean", bare=True), [text for text in TEXTS if text]
    tokens, plain = static.view.core.tokenizer(TEXTS), bare.encode(TEXTS)
    table = static.view.core.engine.table
    for text, vector, start, length in zip(TEXTS, plain, tokens.starts, tokens.lengths, strict=True):
        rows = table[tokens.flat[start : start + length]]
        np.testing.assert_allclose(vector, rows.mean(axis=0) if text else np.zeros(WIDTH), atol=1e-6)
    lengths = np.linalg.norm(static.encode(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, [bool(np.any(v)) for v in plain], atol=1e-6)
    assert static.encode([]).shape == (0, WIDTH)
    found = by_pooling(bare, texts, ["mean", "first_last_avg"])
    np.testing.assert_allclose(found["mean"], found["first_last_avg"], atol=1e-6)


def test_everything_that_follows_an_encoder_follows_it(static, folder, tmp_path):
    small = static.whiten(SENTENCES * 5 + [f"number {i}" for i in range(40)], k=4)
    back = Encoder.from_pretrained(small.save(tmp_path / "small"))
    np.testing.assert_allclose(back.encode(SENTENCES), small.encode(SENTENCES), atol=1e-6)
    loaded = Encoder.from_pretrained(folder)
    assert (loaded.view.fingerprint, loaded.max_length) == (static.view.fingerprint, 100)
    vectors = static.encode(SENTENCES)
    np.testing.assert_array_equal(np.concatenate(list(static.encode_stream(SENTENCES, block_size=3))), vectors)
    np.testing.assert_array_equal(static.encode_query(SENTENCES[0]), vectors[0])
    with pytest.raises(InputError, match="the mean of its tokens"):
        static.with_pooling("max").save(tmp_path / "max")


LIBRARIES = {
    "sentence_transformers": (
        lambda library, folder: library.SentenceTransformer(str(folder), device="cpu"),
        lambda model, folder: model.save(str(folder)),
    ),
    "model2vec": (
        lambda library, folder: library.StaticModel.from_pretrained(folder),
        lambda model, folder: model.save_pretrained(folder),
    ),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_other_libraries_read_the_folder_and_write_it(static, folder, tmp_path, name):
    load, save = LIBRARIES[name]
    model = load(pytest.importorskip(name), folder)
    np.testing.assert_allclose(model.encode(TEXTS), static.encode(TEXTS), atol=1e-6)
    save(model, tmp_path / "theirs")
    theirs = Encoder.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(theirs.encode(TEXTS), static.encode(TEXTS), atol=1e-6)


def change(folder, tmp_path, tensors):
    place = shutil.copytree(folder, tmp_path / "changed")
    save_file(tensors, place / "model.safetensors")
    (place / "jaxwhiten.json").unlink()
    return place


def test_a_quantized_vocabulary(static, folder, tmp_path):
    rows = np.arange(200) % 7
    tensors = {"embeddings": static.view.core.engine.table[:7].copy(), "mapping": rows}
    tensors["weights"] = np.linspace(0, 1, 200, dtype=np.float32)
    model, _, _ = load_model(change(folder, tmp_path, tensors))
    np.testing.assert_allclose(
        model.embedding[...], tensors["embeddings"][rows] * tensors["weights"][:, None], atol=1e-7
    )


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"table": np.zeros((200, 2), np.float32)}, "no table of token vectors"),
        ({"embeddings": np.zeros(200, np.float32)}, "no table of token vectors"),
        ({"embeddings": np.zeros((200, 2), np.float32), "mapping": np.full(200, 200)}, "is not a list of row numbers"),
        ({"embeddings": np.full((200, 2), np.nan, np.float32)}, "NaN"),
        ({"embeddings": np.zeros((3, 2), np.float32)}, "more than the 3 rows"),
    ],
)
def test_damaged_tables_are_refused(folder, tmp_path, tensors, message):
    with pytest.raises(ModelError, match=message):
        Encoder.from_pretrained(change(folder, tmp_path, tensors))


def test_a_pooling_after_the_table_is_refused(folder, tmp_path):
    names = ("StaticEmbedding", "Pooling")
    modules = [{"type": f"sentence_transformers.models.{name}", "path": ""} for name in names]
    changed = shutil.copytree(folder, tmp_path / "changed")
    (changed / "modules.json").write_text(json.dumps(modules))
    (changed / "jaxwhiten.json").unlink()
    with pytest.raises(ModelError, match="expected one Transformer"):
        Encoder.from_pretrained(changed)
