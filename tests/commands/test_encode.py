"""Every form of input and output gives the vectors of `Encoder.encode`, and every role its own prompt."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, normalize
from jaxwhiten.search import load_index
from tests.conftest import ROOT, without_hwloc
from tests.sentences import generated
from tests.tiny import SENTENCES

MODEL = ("--pooling", "mean", "--max-length", 32)


@pytest.fixture(scope="module")
def vectors(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).encode(SENTENCES)


@pytest.fixture
def parquet(tmp_path):
    """The sentences in a column `text` beside a number."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"id": list(range(len(SENTENCES))), "text": SENTENCES}), tmp_path / "sentences.parquet")
    return tmp_path / "sentences.parquet"


def test_parquet_holds_texts_and_vectors(run, tiny_model, tmp_path, vectors, parquet):
    pq = pytest.importorskip("pyarrow.parquet")
    done = run("encode", parquet, "--model", tiny_model, *MODEL, "--output", tmp_path / "e.parquet", "--block", 3)
    assert done.code == 0, done.err
    table = pq.read_table(tmp_path / "e.parquet")
    assert table["text"].to_pylist() == SENTENCES
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), vectors, atol=1e-5)


def test_stdin_to_stdout_as_json_lines(run, tiny_model, vectors, monkeypatch):
    raw = "\ufeff" + "\r\n".join(SENTENCES)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw.encode())))
    done = run("encode", "-", "--model", tiny_model, *MODEL, "--output", "-")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["text"] for row in rows] == SENTENCES
    np.testing.assert_allclose([row["embedding"] for row in rows], vectors, atol=1e-5)


def test_a_table_from_stdin(run, tiny_model, tmp_path, vectors, monkeypatch, parquet):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(parquet.read_bytes())))
    words = ("--format", "parquet", "--column", "text", "--output", tmp_path / "e.npy")
    done = run("encode", "-", "--model", tiny_model, *MODEL, *words)
    assert done.code == 0, done.err
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), vectors, atol=1e-5)


@pytest.mark.slow
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
