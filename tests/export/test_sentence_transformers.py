"""Exported folders and their cards, the hub that they are pushed to, and graphs of every family."""

import json
import shutil
from types import SimpleNamespace
from unittest import mock

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import validate_repo_id

from jaxwhiten import Encoder, Whitening, normalize, push_to_hub
from jaxwhiten.errors import InputError, OutputError
from jaxwhiten.export import model_card, save_onnx
from tests.conftest import slow_but
from tests.graphs import run
from tests.tiny import FAMILIES, SENTENCES, write_model


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24, prompts={"query": "query: "})


@pytest.mark.parametrize("family", slow_but(FAMILIES, "modernbert"))
def test_onnx_runtime_gives_the_vectors_of_every_family(tmp_path, family):
    """`tests/head` has every head."""
    model = write_model(tmp_path / "model", **FAMILIES[family])
    encoder = Encoder.from_pretrained(model, pooling="first_last_avg", max_length=24)
    found = run(save_onnx(tmp_path / "out", encoder))
    np.testing.assert_allclose(found, encoder.encode(SENTENCES), atol=1e-4)
    np.testing.assert_allclose(run(tmp_path / "out", SENTENCES[:1]), found[:1], atol=1e-5)


def test_whiten_fits_and_shares_the_weights(encoder):
    texts = [f"{a} {b}" for a in SENTENCES for b in SENTENCES]
    small = encoder.whiten(texts, k=4)  # without a warning: 100 rows are enough for 4 columns
    with pytest.warns(UserWarning, match="on 100 rows"):
        encoder.whiten(texts, k=16, shrinkage=None)
    fitted = Whitening(n_components=4, shrinkage="oas").fit(encoder.encode(texts))
    vectors = encoder.encode(SENTENCES)
    np.testing.assert_allclose(small.encode(SENTENCES), normalize(fitted.transform(vectors)), atol=1e-4)
    assert small.view.core.engine is encoder.view.core.engine
    assert (encoder.dimension, small.dimension) == (32, 4)
    assert small.view.head.whitening.provenance["fingerprint"] == encoder.view.fingerprint
    bare = encoder.with_whitening(fitted, normalize=False)
    np.testing.assert_allclose(bare.encode(SENTENCES), fitted.transform(vectors), atol=1e-4)


def test_half_precision_is_half_the_size_and_no_model_is_written_over(encoder, tiny_model, tmp_path):
    half = encoder.save(tmp_path / "half", dtype="float16") / "model.safetensors"
    assert half.stat().st_size < 0.6 * (tiny_model / "model.safetensors").stat().st_size
    with pytest.raises(InputError, match="own folder"):
        encoder.save(tiny_model)


def test_card(encoder):
    how = {"base_model": "tiny: model", "recipe": {"seed": 3}}
    text = model_card("stsb", encoder, scores={"STS-B test": 81.234}, before={"STS-B test": 81.3}, **how)
    header, body = text.split("---\n")[1:3]
    assert 'base_model: "tiny: model"' in header
    assert "| STS-B test | 81.23 |\n| STS-B test, base model | 81.30 |\n\nTraining made the model worse." in body
    assert json.loads(body.split("```json\n")[1].split("```")[0]) == {"seed": 3}
    assert "No task was scored" in model_card("x", encoder, scores={}, before={}, **how)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The client of huggingface_hub, with its signatures, which keeps what is uploaded."""
    api = mock.create_autospec(huggingface_hub.HfApi, instance=True)

    def create(repo_id, **_):
        validate_repo_id(repo_id)
        return SimpleNamespace(repo_id=f"me/{repo_id.rpartition('/')[2]}")

    def upload(*, folder_path, create_pr, **_):
        shutil.copytree(folder_path, tmp_path / "hub")
        return SimpleNamespace(commit_url="the commit", pr_url="the pull request" if create_pr else None)

    api.create_repo.side_effect, api.upload_folder.side_effect, api.folder = create, upload, tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub, "HfApi", mock.Mock(return_value=api))
    return api


def test_what_is_pushed_can_be_loaded_and_may_be_a_branch_of_a_pull_request(hub, encoder):
    small = encoder.whiten(np.random.default_rng(0).normal(size=(400, 32)).astype(np.float32), k=8)
    assert push_to_hub(small, "small", token="t", scores={"STS-B": 71.25}) == "the commit"
    huggingface_hub.HfApi.assert_called_once_with(token="t")
    hub.create_repo.assert_called_once_with("small", private=None, exist_ok=False)
    hub.create_branch.assert_not_called()
    assert hub.upload_folder.call_args.kwargs["repo_id"] == "me/small"
    card = (hub.folder / "README.md").read_text(encoding="utf-8")
    assert "| STS-B | 71.25 |" in card
    assert card.count("# small\n") == 1
    again = Encoder.from_pretrained(hub.folder)
    np.testing.assert_allclose(again.encode_query(SENTENCES), small.encode_query(SENTENCES), atol=1e-5)
    shutil.rmtree(hub.folder)
    how = {"revision": "try", "create_pr": True, "commit_message": "A try", "private": True}
    assert push_to_hub(encoder, "me/small", **how) == "the pull request"
    hub.create_repo.assert_called_with("me/small", private=True, exist_ok=True)
    hub.create_branch.assert_called_once_with("me/small", branch="try", exist_ok=True)
    given = hub.upload_folder.call_args.kwargs
    assert (given["revision"], given["create_pr"], given["commit_message"]) == ("try", True, "A try")


def test_what_the_hub_refuses_is_said(hub, encoder):
    with pytest.raises(InputError, match="not a valid repository ID"):
        push_to_hub(encoder, "me/small/much")
    hub.create_repo.side_effect = HfHubHTTPError("409", response=mock.Mock(), server_message="You have this\nand more")
    with pytest.raises(OutputError, match=r"me/small: .*You have this\).*hf auth login.*exist_ok=True"):
        push_to_hub(encoder, "me/small")
    hub.create_repo.side_effect = OSError("offline")
    with pytest.raises(OutputError, match="offline"):
        push_to_hub(encoder, "me/small")
