"""Search over HTTP, changes of the index, and an index that others change."""

import contextlib
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.errors import JaxwhitenError
from jaxwhiten.search import load_index
from tests.serving.conftest import TEXTS, served


def hits(answer):
    assert answer.status_code == 200, answer.text
    return [(hit["id"], hit["text"]) for hit in answer.json()["hits"]]


@contextlib.contextmanager
def writer(path):
    """Another process that changes the file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def invalid(answer, message):
    assert answer.status_code == 422, answer.text
    assert message in answer.json()["error"]["message"]


def test_a_search_finds_what_the_index_finds(coded):
    expected = load_index(coded.file).search("a man plays music", 5)
    answer = coded.post("/search", text="a man plays music", k=5)
    assert hits(answer) == [(hit.id, hit.text) for hit in expected]
    np.testing.assert_allclose([hit["score"] for hit in answer.json()["hits"]], [h.score for h in expected], atol=1e-5)
    query = coded.post("/v1/embeddings", model="small:query", input="a man plays music").json()["data"][0]["embedding"]
    assert hits(coded.post("/search", vector=query, k=5)) == hits(answer)
    assert len(hits(coded.post("/search", text="a", k=10_000))) == load_index(coded.file).size


def test_a_search_among_some_documents_counts_those_that_are_not_there(coded):
    ids = [int(id) for id in load_index(coded.file).ids[:4]]
    answer = coded.post("/search", text="a man", among=[*ids, ids[0], 10**6, "no such"], k=10_000)
    assert sorted(id for id, _ in hits(answer)) == sorted(ids)
    assert answer.json()["unknown"] == 2
    assert coded.post("/search", text="a man", among=["no such"]).json() == {"hits": [], "unknown": 1}
    assert len(hits(coded.post("/search", text="a man", among=ids, k=2))) == 2


def test_documents_are_added_replaced_and_removed(coded):
    size = load_index(coded.file).size
    answer = coded.post("/add", texts=["A zebra in the bath.", " \n", "  Two zebras. "]).json()
    assert answer == {"documents": size + 2, "added": 2, "skipped": 1, "present": 0}
    one, two = map(int, load_index(coded.file).ids[-2:])
    assert hits(coded.post("/search", text="A zebra in the bath.", k=1)) == [(one, "A zebra in the bath.")]
    answer = coded.post("/update", ids=[one, two], texts=["An okapi in the bath.", ""]).json()
    assert "texts.1" in answer["error"]["message"]
    answer = coded.post("/update", ids=[one, two], texts=["An okapi in the bath.", " "]).json()
    assert answer == {"documents": size + 2, "replaced": 1, "skipped": 1}
    assert hits(coded.post("/search", text="Two zebras.", k=1)) == [(two, "Two zebras.")]
    assert hits(coded.post("/search", text="An okapi in the bath.", k=1)) == [(one, "An okapi in the bath.")]
    answer = coded.post("/remove", ids=[one, two, one, 10**6, 10**7]).json()
    assert answer == {"documents": size, "removed": 2, "unknown": 2}
    assert load_index(coded.file).size == size


def test_a_changed_index_is_noticed(coded):
    index = load_index(coded.file)
    before = index.size
    vectors = coded.encoder.with_view(coded.encoder.view.uncoded).encode_document(["A walrus on the roof."])
    index.add(np.asarray(vectors), documents=["A walrus on the roof."])
    assert hits(coded.post("/search", text="A walrus on the roof.", k=1)) == [(index.ids[-1], "A walrus on the roof.")]
    coded.post("/remove", ids=[int(index.ids[-1])])
    assert load_index(coded.file).size == before


@pytest.fixture
def small(tiny, tmp_path):
    """A server of a small index with IDs, which requests may change."""
    tiny.index(TEXTS[:20], ids=[f"d{i}" for i in range(20)]).save(tmp_path / "docs.db")
    with served(tiny, index=tmp_path / "docs.db", writable=True) as server, ThreadPoolExecutor(20) as pool:
        server.file = tmp_path / "docs.db"
        server.later = lambda path, **body: pool.submit(server.post, path, **body)
        yield server


def test_changes_wait_in_a_queue_of_their_own(small):
    """While another writer is at work, searches are answered, and every change is done once and says so."""
    with writer(small.file):
        waiting = [small.later("/add", ids=[f"new {i}"], texts=[f"A new text {i}."]) for i in range(16)]
        while "jaxwhiten_changes 16.0" not in small.client.get("/metrics").text:
            time.sleep(0.01)
        full = small.post("/remove", ids=["d0"])
        assert full.status_code == 429
        assert int(full.headers["Retry-After"]) > 0
        for _ in range(3):
            assert len(hits(small.post("/search", text="a man", k=20))) == 20
        assert small.post("/v1/embeddings", model="jaxwhiten-tiny", input="a").status_code == 200
        assert not any(job.done() for job in waiting)
    sizes = [job.result().json()["documents"] for job in waiting]
    assert sorted(sizes) == list(range(21, 37))
    assert load_index(small.file).size == 36


def test_a_repeated_request_is_harmless(small):
    body = {"ids": ["a", "b"], "texts": ["One.", "Two."]}
    for again in (False, True, True):
        answer = small.post("/add", **body).json()
        assert answer == {"documents": 22, "added": 0 if again else 2, "present": 2 if again else 0, "skipped": 0}
    assert small.post("/add", ids=["b", "c"], texts=["Two.", "Three."]).json()["added"] == 1
    invalid(small.post("/add", ids=["c", "d"], texts=["Another.", "Four."]), "'c' is already in the index")
    for _ in range(2):
        answer = small.post("/update", ids=["a"], texts=["Uno."]).json()
        assert answer == {"documents": 23, "replaced": 1, "skipped": 0}
    for again in (False, True):
        answer = small.post("/upsert", ids=["b", "e"], texts=["Dos.", "Five."]).json()
        assert answer == {"documents": 24, "added": 0 if again else 1, "replaced": 2 if again else 1, "skipped": 0}
    index = load_index(small.file)
    assert [index[id].text for id in "abce"] == ["Uno.", "Dos.", "Three.", "Five."]
    for _ in range(2):
        answer = small.post("/remove", ids=["a"]).json()
    assert answer == {"documents": 23, "removed": 0, "unknown": 1}


def test_hits_have_the_metadata_that_documents_brought(tiny, tmp_path):
    tiny.index(["One.", "Two."], ids=["a", "b"], metadata=[{"n": 1}, {"n": None}]).save(tmp_path / "docs.db")
    with served(tiny, index=tmp_path / "docs.db", writable=True) as server:
        (hit,) = server.post("/search", text="One.", k=1).json()["hits"]
        assert (hit["id"], hit["metadata"]) == ("a", {"n": 1})
        body = {"ids": ["c", "d"], "texts": ["Three.", " "], "metadata": [{"n": [3, {"deep": "é"}]}, {}]}
        assert server.post("/add", **body).json()["added"] == 1
        server.post("/update", ids=["b"], texts=["Zwei."], metadata=[{"n": 2}])
        answers = server.post("/search", text="One.", k=3).json()["hits"]
        assert {hit["id"]: hit["metadata"]["n"] for hit in answers} == {"a": 1, "b": 2, "c": [3, {"deep": "é"}]}
        found = server.post("/search", text="One.", among=["b", "c"], where={"n": 2}).json()["hits"]
        assert [hit["id"] for hit in found] == ["b"]
        invalid(server.post("/add", ids=["e"], texts=["Five."], metadata=[{"n": 2**64}]), "metadata: row 0")
        many = {str(name): 0 for name in range(2**15 + 70)}
        assert server.post("/add", ids=["e"], texts=["Five."], metadata=[many]).status_code == 413


def test_a_change_whose_caller_goes_away_before_it_begins_is_dropped(small):
    with writer(small.file):
        begun = small.later("/add", ids=["begun"], texts=["Begun."])
        time.sleep(0.3)
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{small.url}/add", json={"ids": ["gone"], "texts": ["Gone."]}, timeout=0.5)
    assert begun.result().json()["documents"] == 21
    assert small.post("/add", ids=["last"], texts=["Last."]).json()["documents"] == 22
    assert list(load_index(small.file).ids[20:]) == ["begun", "last"]


def test_an_index_may_not_be_writable_nor_of_another_encoder(coded):
    with served(coded.encoder, index=coded.file) as server:
        assert hits(server.post("/search", text=TEXTS[0], k=1))[0][1] == TEXTS[0]
        assert server.post("/add", texts=["a"]).status_code == 404
    with (
        pytest.raises(JaxwhitenError),
        served(Encoder.from_pretrained("jaxwhiten-tiny", pooling="cls"), index=coded.file),
    ):
        pass
