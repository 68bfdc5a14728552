"""What a request may hold: headers, values, characters, bytes, and time, whoever sends it; and who may send it."""

import contextlib
import json
import socket
import time

import httpx2
import numpy as np
import pytest

from jaxwhiten import Encoder
from tests.serving.conftest import TEXTS, served

NAME = "jaxwhiten-tiny"
JSON = {"Content-Type": "application/json"}
MEGA = 1 << 20
HEAD = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def address(server):
    url = httpx2.URL(server.url)
    return url.host, url.port


SHAPES = {
    "unknown fields": lambda n: "{" + ",".join(f'"{i}":0' for i in range(n)) + "}",
    "nulls": lambda n: '{"model":"m","input":[' + ",".join(["null"] * n) + "]}",
    "objects": lambda n: '{"model":"m","input":' + '{"a":' * n,
    "depth": lambda n: "[" * n,
    "digits": lambda n: '{"model":"m","input":"a","dimensions":' + "1" * n + "}",
    "a long field": lambda n: '{"' + "a" * n + '":0}',
    "escapes": lambda n: '{"input":"' + '\\"' * n,
    "strings": lambda n: '["",' * n,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_bounded_before_objects_are_made_of_them(plain, shape):
    body = SHAPES[shape](700_000)
    start = time.perf_counter()
    answer = plain.client.post("/v1/embeddings", content=body, headers=JSON)
    assert answer.status_code in (400, 413)
    assert len(answer.content) < 1000
    assert time.perf_counter() - start < 3


def test_a_long_text_is_read_as_far_as_the_model_does(plain):
    """The tokenizer would read all of it first."""
    texts = [" ".join(TEXTS) * 40, "the end " * 900_000, TEXTS[0]]
    answer = plain.post("/v1/embeddings", model=NAME, input=texts)
    assert answer.json()["usage"]["truncated"] == 2
    found = [row["embedding"] for row in answer.json()["data"]]
    expected = plain.encoder.encode([texts[0], texts[1][:5000], texts[2]])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    answer = plain.post("/v1/embeddings", model=NAME, input=["a", " " * 3_000_000 + "the end"])
    assert answer.status_code == 413
    assert "too few tokens for its 3,000,007 characters" in answer.text


def test_a_request_has_time_to_arrive(tiny):
    with served(tiny, seconds=0.3) as server, socket.create_connection(address(server), timeout=10) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_long_bodies_together_are_bounded(tiny, monkeypatch):
    from jaxwhiten.serving import gate

    monkeypatch.setattr(gate, "_BODIES", MEGA)
    with served(tiny) as server, contextlib.ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(socket.create_connection(address(server)))
            connection.sendall(HEAD + b"Content-Length: 8000000\r\n\r\n" + b" " * 700_000)
        time.sleep(0.3)
        assert server.post("/v1/embeddings", model=NAME, input="a").status_code == 200
        body = json.dumps({"model": NAME, "input": "a " * 250_000})
        answer = server.client.post("/v1/embeddings", content=body, headers=JSON)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
        stack.close()
        for _ in range(100):  # until the server has noticed
            if server.client.post("/v1/embeddings", content=body, headers=JSON).status_code == 200:
                break
        else:
            pytest.fail("the bytes are still counted")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("[::1]:8000", 200),
        ("vectors.example:8000", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8000", 421),
    ],
)
def test_a_name_that_was_pointed_here_is_refused(named, host, status):
    """A web page of any name may call its own host, whatever address that name has."""
    for answer in (
        named.client.get("/v1/models", headers={"Host": host}),
        named.client.post("/v1/embeddings", json={"model": NAME, "input": "a"}, headers={"Host": host}),
    ):
        assert answer.status_code == status
    if status == 421:
        assert "--allow-host" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def named():
    encoder = Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", max_length=64)
    with served(encoder, hosts=["127.0.0.1", "vectors.example"]) as server:
        yield server
