"""Uploads through huggingface_hub's own client to a hub on loopback, and back."""

import json

import numpy as np
import pytest
from huggingface_hub import constants

from jaxwhiten import Encoder, push_to_hub
from jaxwhiten.errors import InputError, OutputError
from tests.export.hub import serving
from tests.tiny import SENTENCES


@pytest.fixture
def hub(monkeypatch):
    with serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its protocol is spoken by no server here
        yield hub


@pytest.fixture(scope="module")
def encoder(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24, prompts={"query": "query: "})
    rows = np.random.default_rng(0).normal(size=(400, 32)).astype(np.float32)
    return encoder.whiten(rows, k=8)


def test_what_is_pushed_can_be_loaded(hub, encoder, tmp_path):
    address = push_to_hub(encoder, "me/small", token=hub.token, scores={"STS-B": 71.25})
    assert address.startswith(f"{hub.url}/me/small/commit/")
    files = hub.repos["me/small"]
    assert files.keys() >= {"modules.json", "model.safetensors", "whitening.safetensors", "README.md", "tokenizer.json"}
    assert hub.blobs  # weights went by LFS, the rest in the commit
    assert "| STS-B | 71.25 |" in files["README.md"].decode()
    assert files["README.md"].decode().count("# small\n") == 1
    assert json.loads(files["config_sentence_transformers.json"])["prompts"] == {"query": "query: "}
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    again = Encoder.from_pretrained(tmp_path)
    np.testing.assert_allclose(again.encode_query(SENTENCES), encoder.encode_query(SENTENCES), atol=1e-5)


def test_a_branch_and_a_pull_request(hub, encoder):
    push_to_hub(encoder, "me/small", token=hub.token, revision="try", commit_message="A try")
    assert (hub.branches, hub.commits[0]["revision"], hub.commits[0]["summary"]) == (["try"], "try", "A try")
    assert push_to_hub(encoder, "me/small", token=hub.token, create_pr=True) == f"{hub.url}/me/small/discussions/1"


def test_a_repository_that_is_there(hub, encoder):
    hub.repos["me/small"] = {}
    with pytest.raises(OutputError, match=r"me/small: could not be uploaded.*exist_ok=True"):
        push_to_hub(encoder, "me/small", token=hub.token)
    assert hub.repos["me/small"] == {}
    push_to_hub(encoder, "me/small", token=hub.token, exist_ok=True)
    assert "modules.json" in hub.repos["me/small"]


def test_mistakes_are_named(hub, encoder, monkeypatch):
    with pytest.raises(OutputError, match=r"Invalid username or password.*hf auth login"):
        push_to_hub(encoder, "me/small", token="hf_wrong")
    with pytest.raises(InputError, match="not a valid repository ID"):
        push_to_hub(encoder, "me/small/much", token=hub.token)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OutputError, match="offline"):
        push_to_hub(encoder, "me/small", token=hub.token)
