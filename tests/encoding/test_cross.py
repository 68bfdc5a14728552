"""`CrossEncoder` against sentence-transformers', in both directions; its ranking; its mistakes."""

import json

import numpy as np
import pytest
from flax import nnx

from jaxwhiten import CrossEncoder
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.models import PairClassifier, init_model
from tests.conftest import slow_but
from tests.tiny import SENTENCES, tiny_config

PAIRS = [(a, b) for a in SENTENCES[4:] for b in (*SENTENCES[-1:], "[SEP]", "")]


def make(tokenizer, labels=1, **options):
    sizes = {"num_layers": 1, "hidden_size": 16, "intermediate_size": 16, "initializer_range": 0.4}
    model = PairClassifier(init_model(tiny_config(**sizes), seed=1), labels, rngs=nnx.Rngs(2))
    return CrossEncoder(model, tokenizer, max_length=24, **options)


@pytest.fixture(scope="module")
def one(tiny_model):
    return make(tiny_model)


@pytest.mark.parametrize(("labels", "activation"), slow_but([(1, "Identity"), (3, None)], (3, None)))
def test_folders_are_those_of_sentence_transformers(tiny_model, tmp_path, labels, activation):
    library = pytest.importorskip("sentence_transformers")
    mine = make(tiny_model, labels, activation=activation, label_names=["yes", "maybe", "no"][:labels])
    expected = mine.predict(PAIRS)
    peer = library.CrossEncoder(str(mine.save(tmp_path / "mine")), device="cpu")
    assert peer.max_seq_length == 24
    assert list(peer.config.id2label.values()) == list(mine.label_names)
    np.testing.assert_allclose(peer.predict(PAIRS), expected, atol=1e-5)
    peer.save_pretrained(str(tmp_path / "peer"))
    again = CrossEncoder.from_pretrained(tmp_path / "peer")
    assert (again.activation, again.label_names) == (mine.activation, mine.label_names)
    np.testing.assert_allclose(again.predict(PAIRS), expected, atol=1e-5)
    if labels == 3:
        soft = again.predict(PAIRS, apply_softmax=True)
        np.testing.assert_allclose(soft, peer.predict(PAIRS, apply_softmax=True), atol=1e-5)


def test_ranks_and_reranks(one):
    query, documents = SENTENCES[1], SENTENCES[:8]
    scores = one.predict([(query, document) for document in documents])
    order = np.argsort(-scores)
    found = one.rank(query, documents, top_k=3)
    assert [hit["corpus_id"] for hit in found] == order[:3].tolist()
    np.testing.assert_allclose([hit["score"] for hit in found], scores[order[:3]], atol=1e-6)
    values, ranked = one.rerank([query, documents[0]], documents, np.array([[5, -1, 2], [0, 1, -1]]))
    assert ranked[0].tolist() == [*(row for row in order if row in (5, 2)), -1]
    np.testing.assert_allclose(values[0, :2], scores[ranked[0, :2]], atol=1e-6)
    assert (ranked[:, 2].tolist(), np.isneginf(values[:, 2]).all()) == ([-1, -1], True)


def with_setting(folder, **settings):
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return CrossEncoder.from_pretrained(folder)


MISTAKES = {
    "one sentence": (lambda one, _: one.predict(["one sentence"]), InputError, "a pair of sentences"),
    "a score per pair": (lambda one, f: make(one.tokenizer.folder, 2).rank("a", ["b"]), InputError, "2 labels"),
    "length": (lambda one, f: CrossEncoder.from_pretrained(f, max_length=65), InputError, "3 to 64"),
    "no room": (
        lambda _, f: CrossEncoder.from_pretrained(f, max_length=4).predict([("a", "b")]),
        InputError,
        "3 special tokens",
    ),
    "activation": (lambda _, f: with_setting(f, activation_fn="torch.nn.Tanh"), ModelError, "Sigmoid, Identity"),
    "prompt": (lambda _, f: with_setting(f, default_prompt_name="query"), ModelError, "prompt"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(one, tmp_path, mistake):
    use, error, words = MISTAKES[mistake]
    with pytest.raises(error, match=words):
        use(one, one.save(tmp_path))
