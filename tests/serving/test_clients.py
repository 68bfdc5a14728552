"""The clients that people have: openai, LangChain's, huggingface_hub's, and generated requests."""

import base64
import itertools
import os
import shutil

import httpx2
import numpy as np
import pytest

from jaxwhiten.arrays import normalize
from tests.serving.conftest import TEXTS, served

NAME = "jaxwhiten-tiny"
EXAMPLES = int(os.environ.get("JAXWHITEN_FUZZ_EXAMPLES", 40))  # of each path


def test_openai(plain, coded):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{plain.url}/v1", api_key="none", max_retries=0)
    right = plain.encoder.encode(TEXTS[:3])
    for how in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 256, "user": "me"}):
        answer = client.embeddings.create(model=NAME, input=TEXTS[:3], **how)
        found = [item.embedding for item in answer.data]
        if how.get("encoding_format") == "base64":
            assert all(isinstance(text, str) for text in found)
            continue
        np.testing.assert_allclose(found, right, atol=1e-6)
    assert answer.usage.total_tokens > 0
    assert [model.id for model in client.models.list()] == [NAME, f"{NAME}:query"]
    assert client.models.retrieve(f"{NAME}:query").id == f"{NAME}:query"
    for wrong, error in ({"input": [1, 2]}, openai.BadRequestError), ({"model": "gpt"}, openai.NotFoundError):
        with pytest.raises(error) as caught:
            client.embeddings.create(**{"model": NAME, "input": "a", **wrong})
        assert caught.value.body["param"] in wrong
    client.close()
    client = openai.OpenAI(base_url=f"{coded.url}/v1", api_key="none", max_retries=0)
    codes = coded.encoder.encode_document(TEXTS[:3])
    vectors = np.asarray(coded.encoder.with_view(coded.encoder.view.uncoded).encode_document(TEXTS[:3]))
    right = {
        "float": normalize(codes.decode()),
        "code": np.asarray(codes),
        "ubinary": np.packbits(vectors > 0, axis=1),
        "int8": np.rint(vectors / np.abs(vectors).max(axis=1, keepdims=True) * 127),
    }
    for kind, encoding in itertools.product(right, ("", "float", "base64")):
        how = {"encoding_format": encoding} if encoding else {}
        answer = client.embeddings.create(model="small", input=TEXTS[:3], extra_body={"output_dtype": kind}, **how)
        found = [item.embedding for item in answer.data]
        if encoding == "base64":  # asked for, so the client leaves it
            found = [np.frombuffer(base64.b64decode(row), "<f4") for row in found]
        np.testing.assert_allclose(found, right[kind], atol=1 if kind == "int8" else 1e-5)
    client.close()


def test_the_client_of_text_embeddings_inference(plain, monkeypatch):
    from huggingface_hub import InferenceClient, close_session, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    client = InferenceClient(plain.url)
    expected = normalize(plain.encoder.encode(TEXTS[:3]))
    np.testing.assert_allclose(client.feature_extraction(TEXTS[:3]), expected, atol=1e-6)
    found = client.feature_extraction(TEXTS[0], normalize=False, truncate=True, prompt_name="query")
    np.testing.assert_allclose(found, [plain.encoder.encode_query(TEXTS[0])], atol=1e-6)
    close_session()


@pytest.fixture
def scratch(coded, tmp_path):
    """A server of an index of its own: generated requests change any document."""
    shutil.copy(coded.file, tmp_path / "docs.db")
    with served(coded.encoder, index=tmp_path / "docs.db", writable=True) as server:
        yield server


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")  # of schemathesis' own strategies
def test_generated_requests_get_the_answers_described(scratch):
    """No error of the server, and no status, type or shape that its OpenAPI description lacks."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings
    from schemathesis import checks

    schema = schemathesis.openapi.from_dict(httpx2.get(f"{scratch.url}/openapi.json").json())
    schema.config.update(base_url=scratch.url)
    names = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
    named = [getattr(checks, name) if hasattr(checks, name) else checks.CHECKS.get_one(name) for name in names]
    seen = set()
    for operation, mode in itertools.product(schema.get_all_operations(), schemathesis.GenerationMode):
        if mode.is_negative and operation.ok().method == "get":
            continue
        case = operation.ok().as_strategy(generation_mode=mode)

        how = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}

        @settings(max_examples=EXAMPLES, derandomize=True, **how)
        @given(case=case)
        def try_it(case):
            answer = case.call()
            seen.add((case.path, answer.status_code))
            case.validate_response(answer, checks=named)

        try_it()
    assert {path for path, _ in seen} >= {
        "/v1/embeddings",
        "/embed",
        "/search",
        "/add",
        "/update",
        "/upsert",
        "/remove",
    }
    assert ("/v1/embeddings", 404) in seen
