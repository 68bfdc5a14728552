"""`jaxwhiten encode`: every input and output form gives the vectors of `Encoder.encode`."""

import io
import json
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder
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
