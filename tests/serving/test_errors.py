"""Every mistake of a request: its status, and the words that say what to do, in the shape of the protocol asked for."""

import pytest

EMBEDDINGS = {  # body, status, and the field and words of an error of OpenAI's shape
    "no text": ({"input": ""}, 400, "input at least 1"),
    "an empty text": ({"input": ["a", ""]}, 400, "input.1"),
    "no texts": ({"input": []}, 400, "input at least 1"),
    "nothing": ({"input": None}, 400, "input"),
    "token ids": ({"input": [5, 7]}, 400, "input check_embedding_ctx_length=False"),
    "many texts": ({"input": ["a"] * 2049}, 413, "input 2048"),
    "another model": ({"input": "a", "model": "mini"}, 404, "model jaxwhiten-tiny:query"),
    "another field": ({"input": "a", "dimension": 3}, 400, "dimension permitted"),
    "dimensions as text": ({"input": "a", "dimensions": "3"}, 400, "dimensions integer"),
    "no dimensions": ({"input": "a", "dimensions": 0}, 400, "dimensions greater"),
    "dimensions of nothing": ({"input": "a", "dimensions": 3}, 400, "dimensions whitening"),
    "no code": ({"input": "a", "output_dtype": "code"}, 400, "output_dtype --bytes"),
    "another type": ({"input": "a", "output_dtype": "bits"}, 400, "output_dtype 'ubinary'"),
    "another encoding": ({"input": "a", "encoding_format": "hex"}, 400, "encoding_format 'base64'"),
}
OTHERS = {  # path, body and words
    "neither": ("/search", {}, "`text` `vector`"),
    "both": ("/search", {"text": "a", "vector": [1.0]}, "`text` `vector`"),
    "no query": ("/search", {"text": ""}, "text"),
    "k": ("/search", {"text": "a", "k": 0}, "k"),
    "another width": ("/search", {"vector": [1.0, 2.0]}, "2"),
    "beyond float32": ("/search", {"vector": "long"}, "query vectors"),
    "another field": ("/search", {"vectors": [1.0]}, "vectors"),
    "another comparison": ("/search", {"text": "a", "where": {"id": {"is": 1}}}, "'is'"),
    "SQL": ("/search", {"text": "a", "where": "id = 1"}, "where"),
    "an unknown id": ("/update", {"ids": [10**6], "texts": ["a"]}, "1000000"),
    "a new number": ("/upsert", {"ids": [10**6], "texts": ["a"]}, "1000000"),
    "texts to remove": ("/remove", {"ids": [0], "texts": ["a"]}, "texts"),
    "nothing to remove": ("/remove", {}, "ids required"),
    "no ids": ("/update", {"texts": ["a"]}, "ids required"),
    "more texts": ("/update", {"ids": [0], "texts": ["a", "b"]}, ""),
    "own ids": ("/add", {"ids": ["mine"], "texts": ["a"]}, ""),
    "nothing to add": ("/add", {}, "texts required"),
    "blank": ("/add", {"texts": [" ", "\t"]}, "texts blank"),
    "a blank update": ("/update", {"ids": [0], "texts": [" "]}, "texts blank"),
}
MALFORMED = [b"", b"{", b"[]", b'"a"', b"\xff", b'{"input":"\\ud800","model":"m"}', b"1" * 9999, b"a" * (9 << 20)]


def error_of(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def missing(message, words):
    return [word for word in words.split() if word not in message]


@pytest.mark.parametrize(("body", "status", "words"), EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_a_request_of_vectors(plain, body, status, words):
    error = error_of(plain.post("/v1/embeddings", **{"model": "jaxwhiten-tiny", **body}), status)
    assert set(error) == {"message", "type", "param", "code"}
    field, *others = words.split(maxsplit=1)
    assert error["param"] == field.partition(".")[0]
    assert missing(error["message"], *others or [""]) == [], error


@pytest.mark.parametrize(("path", "body", "words"), OTHERS.values(), ids=OTHERS)
def test_a_request_of_an_index(coded, path, body, words):
    if body.get("vector") == "long":
        body = {"vector": [1e300] * coded.encoder.view.uncoded.dimension}
    message = error_of(coded.post(path, **body), 422)["message"]
    assert missing(message, words) == [], message


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_a_body_that_is_none(plain, body):
    answer = plain.client.post("/v1/embeddings", content=body, headers={"Content-Type": "application/json"})
    assert error_of(answer, 413 if len(body) > 10_000 else 400)["type"] == "invalid_request_error"
