"""From a corpus to a search with one folder: `fit` writes it, every other command takes it as its --model."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, normalize
from jaxwhiten.search import load_index
from tests.conftest import ROOT, without_hwloc
from tests.sentences import generated


@pytest.mark.usefixtures("no_advice")
def test_without_a_notice_or_a_warning(home):
    """As a user types it, in a process of its own."""
    command = [sys.executable, "-m", "jaxwhiten.commands.cli", "encode", "-", "--model", str(home / "small"), "-o", "-"]
    done = subprocess.run(command, input="One sentence.\n", capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert (done.returncode, without_hwloc(done.stderr)) == (0, "")
    assert len(json.loads(done.stdout)["embedding"]) == 8


def test_queries_and_documents_get_their_own_prompts(run, tiny_model, tmp_path):
    """A model that was trained with them finds little without."""
    prompts = {"query": "Music: ", "document": "salt "}
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", prompts=prompts)
    encoder.save(tmp_path / "model")
    texts = generated(30, seed=7)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    assert run("index", tmp_path / "texts.txt", "--model", tmp_path / "model", "-o", tmp_path / "index").code == 0
    assert load_index(tmp_path / "index").space.prompt == "salt "
    answer = json.loads(run("search", tmp_path / "index", texts[7], "--json", "-k", 3).out)
    scores = normalize(encoder.encode_document(texts)) @ normalize(encoder.encode_query(texts[7]))
    assert [hit["id"] for hit in answer["hits"]] == np.argsort(-scores, kind="stable")[:3].tolist()
