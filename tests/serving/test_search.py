"""Search over HTTP, changes of the index, and an index that others change."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.errors import JaxwhitenError
from jaxwhiten.search import load_index, search_text
from tests.serving.conftest import TEXTS, served


def hits(answer):
    assert answer.status_code == 200, answer.text
    return [(hit["id"], hit["text"]) for hit in answer.json()["hits"]]


def invalid(answer, message):
    assert answer.status_code == 422, answer.text
    assert message in answer.json()["error"]["message"]


def test_a_search_finds_what_the_index_finds(coded):
    (expected,) = search_text(load_index(coded.folder), coded.encoder, ["a man plays music"], 5)
    answer = coded.post("/search", text="a man plays music", k=5)
    assert hits(answer) == [(hit.id, hit.text) for hit in expected]
    np.testing.assert_allclose([hit["score"] for hit in answer.json()["hits"]], [h.score for h in expected], atol=1e-5)
    query = coded.post("/v1/embeddings", model="small:query", input="a man plays music").json()["data"][0]["embedding"]
    assert hits(coded.post("/search", vector=query, k=5)) == hits(answer)
    assert len(hits(coded.post("/search", text="a", k=10_000))) == load_index(coded.folder).size


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "either `text` or `vector`"),
        ({"text": "a", "vector": [1.0]}, "either `text` or `vector`"),
        ({"text": ""}, "text: "),
        ({"text": "a", "k": 0}, "k: "),
        ({"vector": [1.0, 2.0]}, "2"),
        ({"vector": [1e300] * 16}, "query vectors"),
        ({"vectors": [1.0]}, "vectors: Extra inputs"),
    ],
)
def test_an_invalid_search_names_its_field(coded, body, message):
    if len(body.get("vector", ())) == 16:
        body = {"vector": [1e300] * coded.encoder.without_code().dimension}
    invalid(coded.post("/search", **body), message)


def test_documents_are_added_replaced_and_removed(coded):
    size = load_index(coded.folder).size
    assert coded.post("/add", texts=["A zebra in the bath.", "Two zebras."]).json() == {"documents": size + 2}
    one, two = map(int, load_index(coded.folder).ids[-2:])
    assert hits(coded.post("/search", text="A zebra in the bath.", k=1)) == [(one, "A zebra in the bath.")]
    assert coded.post("/update", ids=[one], texts=["An okapi in the bath."]).json() == {"documents": size + 2}
    assert hits(coded.post("/search", text="An okapi in the bath.", k=1)) == [(one, "An okapi in the bath.")]
    assert coded.post("/remove", ids=[one, two]).json() == {"documents": size}
    assert load_index(coded.folder).size == size
    for path, body, message in (
        ("/remove", {"ids": [10**6]}, "1000000"),
        ("/remove", {"ids": [0], "texts": ["a"]}, "texts: Extra inputs"),
        ("/remove", {}, "ids: Field required"),
        ("/update", {"texts": ["a"]}, "ids: Field required"),
        ("/update", {"ids": [0], "texts": ["a", "b"]}, ""),
        ("/add", {"ids": ["mine"], "texts": ["a"]}, ""),
        ("/add", {}, "texts: Field required"),
    ):
        invalid(coded.post(path, **body), message)
    assert len(hits(coded.post("/search", text="zebra", k=10_000))) == size


def test_a_changed_index_is_noticed(coded):
    index = load_index(coded.folder)
    before = index.size
    vectors = coded.encoder.without_code().encode_document(["A walrus on the roof."])
    index.add(np.asarray(vectors), documents=["A walrus on the roof."])
    index.save(coded.folder)
    assert hits(coded.post("/search", text="A walrus on the roof.", k=1)) == [(index.ids[-1], "A walrus on the roof.")]
    coded.post("/remove", ids=[int(index.ids[-1])])
    assert load_index(coded.folder).size == before


def test_an_index_may_not_be_writable_nor_of_another_encoder(coded):
    with served(coded.encoder, index=coded.folder) as server:
        assert hits(server.post("/search", text=TEXTS[0], k=1))[0][1] == TEXTS[0]
        assert server.post("/add", texts=["a"]).status_code == 404
    with (
        pytest.raises(JaxwhitenError),
        served(Encoder.from_pretrained("jaxwhiten-tiny", pooling="cls"), index=coded.folder),
    ):
        pass
