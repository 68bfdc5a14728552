"""Vectors over HTTP: OpenAI's protocol, that of text-embeddings-inference, codes, and what is refused."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.arrays import normalize
from jaxwhiten.codes import load_code
from jaxwhiten.views import View
from tests.serving.conftest import TEXTS, served

NAME = "jaxwhiten-tiny"


def vectors(answer):
    assert answer.status_code == 200, answer.text
    return np.array([item["embedding"] for item in answer.json()["data"]])


def refused(answer, status, param=None):
    """The message of an error in OpenAI's shape."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    return error["message"]


def test_the_vectors_are_those_of_encode(plain):
    answer = plain.post("/v1/embeddings", model=NAME, input=TEXTS[:5])
    np.testing.assert_allclose(vectors(answer), plain.encoder.encode(TEXTS[:5]), atol=1e-6)
    told = answer.json()
    tokens = len(plain.encoder.view.core.tokenizer(TEXTS[:5]).flat)
    assert told["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens, "truncated": 0}
    assert [item["index"] for item in told["data"]] == list(range(5))
    assert (told["object"], told["model"], told["data"][0]["object"]) == ("list", NAME, "embedding")


@pytest.mark.parametrize("kind", [None, "text/plain; application/json"])
def test_what_any_web_page_may_send_is_refused(plain, kind):
    """Browsers ask the server before they send JSON to another site, but not before they send these."""
    headers = {} if kind is None else {"Content-Type": kind}
    answer = plain.client.post("/v1/embeddings", content=json.dumps({"model": NAME, "input": "a"}), headers=headers)
    assert "Content-Type: application/json" in refused(answer, 400)
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    answer = plain.client.post("/v1/embeddings", content=json.dumps({"model": NAME, "input": "a"}), headers=headers)
    assert answer.status_code == 200


def test_paths_and_models(plain):
    models = plain.client.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == [NAME, f"{NAME}:query"]
    assert plain.client.get(f"/v1/models/{NAME}:query").json() == models[1]
    assert NAME in refused(plain.client.get("/v1/models/org/other"), 404, "model")
    for path in ("/health", "/metrics", "/v1/models"):
        answer = plain.client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
    refused(plain.client.get("/v1/nothing"), 404)
    refused(plain.client.get("/v1/embeddings"), 405)
    refused(plain.client.get("/v1/code"), 404)
    assert "--index" in refused(plain.post("/search", text="a"), 404)


def test_roles_choose_prompts(coded):
    queries = coded.encoder.with_view(coded.encoder.view.uncoded).encode_query(TEXTS[:3])
    for asked in ({"model": "small:query"}, {"model": "small", "input_type": "query"}):
        found = vectors(coded.post("/v1/embeddings", input=TEXTS[:3], **asked))
        np.testing.assert_allclose(found, queries, atol=1e-6)
    documents = normalize(coded.encoder.encode_document(TEXTS[:3]).decode())
    for asked in ({"model": "small"}, {"model": "small:query", "input_type": "document"}):
        found = vectors(coded.post("/v1/embeddings", input=TEXTS[:3], **asked))
        np.testing.assert_allclose(found, documents, atol=1e-6)


def test_codes_and_what_decodes_them(coded, tmp_path):
    how = {"model": "small", "input": TEXTS[:40]}
    answer = coded.post("/v1/embeddings", output_dtype="code", **how)
    codes = vectors(answer).astype(np.uint8)
    np.testing.assert_array_equal(codes, coded.encoder.encode_document(TEXTS[:40]))
    (tmp_path / "code.safetensors").write_bytes(coded.client.get(answer.json()["decode"]["code"]).content)
    decoded = normalize(load_code(tmp_path / "code.safetensors").decode(codes))
    np.testing.assert_allclose(decoded, vectors(coded.post("/v1/embeddings", **how)), atol=1e-6)
    refused(coded.post("/v1/embeddings", output_dtype="code", dimensions=4, **how), 400, "output_dtype")


@pytest.mark.slow
def test_dimensions_that_a_folder_declares(tiny, tmp_path):
    tiny.save(tmp_path / "matryoshka")
    path = tmp_path / "matryoshka" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"matryoshka_dimensions": [64, 16]}))
    encoder = Encoder.from_pretrained(tmp_path / "matryoshka")
    with served(encoder) as server:
        found = server.post("/embed", inputs=TEXTS[:4], dimensions=16).json()
        expected = normalize(encoder.encode_document(TEXTS[:4])[:, :16])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        answer = server.post("/v1/embeddings", model="matryoshka", input=TEXTS[:4], dimensions=17)
        assert "use one of [16, 64]" in refused(answer, 400, "dimensions")


def test_long_texts_are_counted_or_refused(plain):
    long = "music " * 100
    usage = plain.post("/v1/embeddings", model=NAME, input=["short", long]).json()["usage"]
    assert usage["truncated"] == 1
    assert plain.post("/embed", inputs=long, truncate=True).status_code == 200
    answer = plain.post("/embed", inputs=["short", long], truncate=False)
    assert answer.status_code == 422
    assert answer.json() == {"error": "inputs: more than 64 tokens in 1 text.", "error_type": "Validation"}


@pytest.mark.parametrize("path", ["/embed", "/"])
def test_embed_is_text_embeddings_inference(plain, coded, path):
    for server, encode in ((plain, plain.encoder.encode), (coded, coded.encoder.encode_document)):
        expected = encode(TEXTS[:3])
        expected = expected if expected.code is None else expected.decode()
        found = server.post(path, inputs=TEXTS[:3]).json()
        np.testing.assert_allclose(found, normalize(np.asarray(expected)), atol=1e-6)
    raw = plain.post(path, inputs=TEXTS[0], normalize=False).json()
    np.testing.assert_allclose(raw, [plain.encoder.encode(TEXTS[0])], atol=1e-6)
    answer = plain.post(path, inputs="a", prompt_name="qery")
    assert answer.status_code == 422
    assert "Did you mean 'query'" in answer.json()["error"]


def test_concurrent_callers_get_their_own_vectors(plain, coded):
    rng = random.Random(0)
    texts = TEXTS[:80]
    asked = [rng.sample(texts, rng.choice([1, 1, 1, 2, 40])) for _ in range(40)]
    names = [rng.choice(["jaxwhiten-tiny", "small", "small:query"]) for _ in asked]
    expected = {
        "jaxwhiten-tiny": dict(zip(texts, plain.encoder.encode(texts), strict=True)),
        "small": dict(zip(texts, normalize(coded.encoder.encode_document(texts).decode()), strict=True)),
        "small:query": dict(
            zip(texts, coded.encoder.with_view(coded.encoder.view.uncoded).encode_query(texts), strict=True)
        ),
    }

    def ask(name, some):
        server = plain if name == NAME else coded
        return vectors(server.post("/v1/embeddings", model=name, input=some if len(some) > 1 else some[0]))

    with ThreadPoolExecutor(16) as pool:
        for name, some, found in zip(names, asked, pool.map(ask, names, asked), strict=True):
            np.testing.assert_allclose(found, [expected[name][text] for text in some], atol=1e-5)
    shown = coded.client.get("/metrics").text
    assert 'jaxwhiten_requests_total{path="/v1/embeddings",status="200"}' in shown
    assert "jaxwhiten_queue_texts 0.0" in shown


class Slow:
    """Batches that wait for permission."""

    def __init__(self, monkeypatch):
        self.go, self.batches, encode = threading.Event(), [], View.of_tokens

        def slow(run, texts, tokens):
            self.batches.append(list(texts))
            assert self.go.wait(30)
            if "bad" in texts:
                raise ValueError("bad")
            return encode(run, texts, tokens)

        monkeypatch.setattr(View, "of_tokens", slow)
        monkeypatch.setattr("jaxwhiten.serving.batching._QUICK", 0)  # texts are encoded by a thread


def until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("in vain")


@pytest.fixture
def slow(tiny, monkeypatch, request):
    """A server whose encoder waits, with a short queue."""
    pytest.importorskip("fastapi")
    encoder = tiny.with_view(tiny.view.uncoded).with_pooling("mean")
    control = Slow(monkeypatch)
    control.go.set()
    control.seconds = 0.5
    how = {"queue": getattr(request, "param", 8), "seconds": control.seconds}
    with served(encoder, name="slow", **how) as server, ThreadPoolExecutor(16) as pool:
        control.ask = lambda *texts: pool.submit(server.post, "/v1/embeddings", model="slow", input=list(texts))
        control.server = server
        control.go.clear()
        control.batches.clear()  # of warming up
        yield control
        control.go.set()


def test_callers_that_wait_share_a_batch_and_a_full_queue_refuses(slow):
    first = slow.ask("one")
    until(lambda: slow.batches)
    rest = [slow.ask(f"text {i}") for i in range(7)]
    until(lambda: "jaxwhiten_queue_texts 8.0" in slow.server.client.get("/metrics").text)
    full = slow.ask("too many").result()
    assert full.status_code == 429
    assert int(full.headers["Retry-After"]) >= 1
    assert full.json()["error"]["type"] == "rate_limit_error"
    slow.go.set()
    assert {job.result().status_code for job in [first, *rest]} == {200}
    assert [len(batch) for batch in slow.batches] == [1, 7]


def test_an_error_is_its_own_callers(slow):
    first = slow.ask("one")
    until(lambda: slow.batches)
    good, bad = slow.ask("good"), slow.ask("bad")
    until(lambda: "jaxwhiten_queue_texts 3.0" in slow.server.client.get("/metrics").text)
    slow.go.set()
    assert (first.result().status_code, good.result().status_code, bad.result().status_code) == (200, 200, 500)


def test_an_accepted_request_is_answered_however_long_it_takes(slow):
    """A caller who waits gets an answer; its work is not thrown away."""
    answers = [slow.ask("one"), slow.ask("two")]
    time.sleep(2 * slow.seconds)
    slow.go.set()
    assert {answer.result().status_code for answer in answers} == {200}


@pytest.mark.parametrize("slow", [1000], indirect=True)
def test_a_single_query_has_its_turn_beside_many_texts(slow):
    """A batch holds few tokens, and callers have their turns."""
    many = slow.ask(*["music " * 60] * 300)
    until(lambda: slow.batches)
    single = slow.ask("single")
    until(lambda: "jaxwhiten_queue_texts 301.0" in slow.server.client.get("/metrics").text)
    slow.go.set()
    assert {job.result().status_code for job in (many, single)} == {200}
    assert ["single"] in slow.batches[:3]
    assert max(map(len, slow.batches)) <= 4096 // 60


def test_texts_of_a_caller_who_went_away_are_not_encoded(slow):
    first = slow.ask("one")
    until(lambda: slow.batches)
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(f"{slow.server.url}/v1/embeddings", json={"model": "slow", "input": ["gone"] * 3}, timeout=0.3)
    until(lambda: "jaxwhiten_queue_texts 1.0" in slow.server.client.get("/metrics").text)
    slow.go.set()
    assert (first.result().status_code, slow.ask("two").result().status_code) == (200, 200)
    assert all("gone" not in batch for batch in slow.batches)
    assert 'status="499"' in slow.server.client.get("/metrics").text


def test_a_key_is_asked_for(tiny):
    with served(tiny, key="secret", origins=["https://example.org"]) as server:
        for path in ("/v1/models", "/openapi.json", "/metrics"):
            assert server.client.get(path).status_code == 401
        assert "Bearer" in refused(server.post("/v1/embeddings", model=NAME, input="a"), 401)
        answer = server.client.get("/v1/models")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        keys = {"Bearer secret": 200, "bearer secret": 200, "BEARER  secret": 200}
        for key, status in (keys | {"Bearer secre": 401, "secret": 401, "Basic secret": 401}).items():
            assert server.client.get("/v1/models", headers={"Authorization": key}).status_code == status
        assert server.client.head("/health").status_code == 200
        names = "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-retry-count"
        for method in ("POST", "GET"):
            asked = {"Origin": "https://example.org", "Access-Control-Request-Method": method}
            answer = server.client.options("/v1/models", headers={**asked, "Access-Control-Request-Headers": names})
            assert answer.status_code == 200
            assert answer.headers["Access-Control-Allow-Origin"] == "https://example.org"
            assert set(names.split(",")) <= set(answer.headers["Access-Control-Allow-Headers"].lower().split(","))
            assert method in answer.headers["Access-Control-Allow-Methods"]
