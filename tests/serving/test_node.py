"""The clients in JavaScript, openai-node and LangChain, and curl: what each call returns, of every type of vector."""

import base64
import gzip
import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from jaxwhiten.arrays import normalize
from tests.conftest import ROOT

TEXTS = ["A man plays a guitar.", "It rains."]
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


def expected(server):
    """The vectors of the two texts, of every type, and of a query."""
    floats = server.encoder.without_code()
    documents = floats.encode_document(TEXTS)
    scales = np.abs(documents).max(axis=1, keepdims=True) / 127
    codes = server.encoder.encode_document(TEXTS)
    query = floats.encode_query(TEXTS)
    return {
        "float": normalize(codes.decode()),
        "code": np.asarray(codes),
        "ubinary": np.packbits(documents > 0, axis=1),
        "int8": np.rint(documents / scales),
        "dimensions": normalize(query[:, :8]),
    }


def check(call, vectors, right):
    kind, _, encoding = call.partition(" ")
    wanted = right["float" if kind == "null" else kind]
    if encoding == "base64":  # asked for, so the client leaves it
        vectors = [np.frombuffer(base64.b64decode(row), "<f4") for row in vectors]
    np.testing.assert_allclose(vectors, wanted, atol=1 if kind == "int8" else 1e-5, err_msg=call)


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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("kind", ["float", "code", "ubinary", "int8"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("compressed", [False, True])
def test_curl(coded, tmp_path, kind, encoding, compressed):
    body = json.dumps({"model": "small", "input": TEXTS, "output_dtype": kind, "encoding_format": encoding}).encode()
    (tmp_path / "body").write_bytes(gzip.compress(body) if compressed else body)
    words = ["curl", "--silent", "--fail", f"{coded.url}/v1/embeddings", "--header", "Content-Type: application/json"]
    words += ["--data-binary", f"@{tmp_path}/body", *(["--header", "Content-Encoding: gzip"] if compressed else [])]
    done = subprocess.run(words, capture_output=True, check=True)
    check(f"{kind} {encoding}", [row["embedding"] for row in json.loads(done.stdout)["data"]], expected(coded))
