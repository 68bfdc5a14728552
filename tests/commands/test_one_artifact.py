"""From a corpus to a search with one folder: `fit` writes it, every other command takes it as its --model."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.search import load_index
from tests.conftest import ROOT, own_cache, without_hwloc
from tests.sentences import generated

MODEL = ("--pooling", "first_last_avg", "--max-length", 32)


@pytest.fixture(scope="module")
def small(corpus, tiny_model, tmp_path_factory):
    """A folder of 12 dimensions that `jaxwhiten fit` wrote."""
    from jaxwhiten.commands import cli

    out = tmp_path_factory.mktemp("small") / "small"
    assert cli.main([str(w) for w in ["fit", corpus, "--model", tiny_model, *MODEL, "-k", 12, "-o", f"{out}/"]]) == 0
    return out


@pytest.fixture(scope="module")
def wanted(small, tiny_model):
    """What the folder has to give, from the parts."""
    whitening = Whitening.load(small / "whitening.safetensors")
    encoder = Encoder.from_pretrained(tiny_model, pooling="first_last_avg", max_length=32)

    def vectors(texts):
        return normalize(whitening.transform(encoder.encode(texts)))

    return vectors


def test_index_and_search(run, small, tmp_path, wanted):
    texts = generated(300, seed=4)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    assert run("index", tmp_path / "texts.txt", "--model", small, "-o", tmp_path / "index").code == 0
    assert load_index(tmp_path / "index").dimension == 12
    done = run("search", tmp_path / "index", texts[7], texts[9], "--json", "-k", 5)
    answers = [json.loads(line) for line in done.out.splitlines()]
    scores = wanted([texts[7], texts[9]]) @ wanted(texts).T
    for answer, row in zip(answers, scores, strict=True):
        assert [hit["id"] for hit in answer["hits"]] == np.argsort(-row, kind="stable")[:5].tolist()
        np.testing.assert_allclose([hit["score"] for hit in answer["hits"]], np.sort(row)[::-1][:5], atol=1e-4)


@pytest.mark.usefixtures("no_advice")
def test_without_a_notice_or_a_warning(small):
    """As a user types it, in a process of its own."""
    command = [sys.executable, "-m", "jaxwhiten.commands.cli", "encode", "-", "--model", str(small), "-o", "-"]
    done = subprocess.run(command, input="One sentence.\n", capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert (done.returncode, without_hwloc(done.stderr)) == (0, "")
    assert len(json.loads(done.stdout)["embedding"]) == 12


@pytest.mark.parametrize("cache", [[], ["--no-cache"]], ids=["cache", "no cache"])
def test_queries_and_documents_get_their_own_prompts(run, tiny_model, tmp_path, monkeypatch, cache):
    """A model that was trained with them finds little without."""
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    prompts = {"query": "Music: ", "document": "salt "}
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", prompts=prompts)
    encoder.save(tmp_path / "model")
    texts = generated(30, seed=7)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    assert (
        run("index", tmp_path / "texts.txt", "--model", tmp_path / "model", "-o", tmp_path / "index", *cache).code == 0
    )
    assert load_index(tmp_path / "index").encoding["prompt"] == "salt "
    answer = json.loads(run("search", tmp_path / "index", texts[7], "--json", "-k", 3).out)
    scores = normalize(encoder.encode_document(texts)) @ normalize(encoder.encode_query(texts[7]))
    assert [hit["id"] for hit in answer["hits"]] == np.argsort(-scores, kind="stable")[:3].tolist()
    np.testing.assert_allclose([hit["score"] for hit in answer["hits"]], np.sort(scores)[::-1][:3], atol=1e-4)
