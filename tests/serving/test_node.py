"""The clients in JavaScript, openai-node and LangChain: what each call returns, of every type of vector."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.serving.conftest import check, expected

PACKAGES = ("openai@6", "@langchain/openai@1", "@langchain/core@1")


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory):
    """A folder with the packages, from `JAXWHITEN_NODE` or npm."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    folder = os.environ.get("JAXWHITEN_NODE") or tmp_path_factory.mktemp("node")
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *PACKAGES], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"npm installs nothing here: {done.stderr[-200:]}")
    return folder


@pytest.mark.slow
def test_clients_in_javascript(coded, node_modules):
    shutil.copy(ROOT / "tests" / "serving" / "clients.mjs", node_modules)
    words = ["node", "clients.mjs", coded.url, "small"]
    done = subprocess.run(words, cwd=node_modules, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    right = expected(coded)
    assert [line for line in lines if line["error"]] == []
    assert len(lines) == 25
    for line in lines:
        call, vectors = line["call"], line["vectors"]
        if call.startswith("models"):
            assert vectors == (["small", "small:query"] if call == "models.list" else ["small:query"])
        elif call.startswith("embed"):
            np.testing.assert_allclose(vectors, right["float"][: len(vectors)], atol=1e-5)
        else:
            check(call, vectors, right)
