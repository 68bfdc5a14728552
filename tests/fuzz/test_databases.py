"""Index files and files of the embedding store: damaged anywhere, or sealed with cells that are wrong."""

import contextlib
import hashlib
import json
import shutil
import sqlite3
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxwhiten import Encoder, Whitening
from jaxwhiten.encoding.store import _Space
from jaxwhiten.io import seal
from jaxwhiten.search import build_index, load_index
from tests.fuzz.common import attempt, damaged, damaged_json, fuzz

VECTORS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
WHITENING = Whitening().fit(np.random.default_rng(1).normal(size=(300, 4)))


@pytest.fixture(scope="module", params=["jax", "faiss-flat"])
def index(request, tmp_path_factory):
    """An index file that was changed since it was made, and a second place where it is damaged."""
    path = tmp_path_factory.mktemp("index") / "whole.db"
    texts, years = [f"text {i}" for i in range(len(VECTORS))], [{"year": i} for i in range(len(VECTORS))]
    made = build_index(VECTORS, request.param, documents=texts, metadata=years, whitening=WHITENING)
    made.save(path)
    made.remove([3])
    made.update([5], VECTORS[:1], documents=["new"], metadata=[{"year": "2024"}])
    return path, path.with_name("damaged.db")


def read(path):
    """Whatever reads an index: a typed error that names the file, or an answer; never a crash."""

    def answers():
        found = load_index(path, read_only=True)
        texts = [hit.text for hit in found.hits(VECTORS[:1], 3, where="year > 1")[0]]
        return found.search(VECTORS[:2], 3), texts, [document.text for document in found], found.database.check()

    with warnings.catch_warnings(action="ignore"):
        found, _ = attempt(answers, names=str(path))
    if found is not None:
        assert all(isinstance(text, str) for text in (*found[1], *found[2]))


@fuzz(0.3)
@given(data=st.data())
def test_damaged_index_files(index, data):
    whole, path = index
    path.write_bytes(data.draw(damaged(whole.read_bytes())))
    read(path)


CELLS = [
    *("header.name", "header.value", "arrays.name", "arrays.dtype", "arrays.shape"),
    *("arrays.rows", "pages.number", "pages.data", "removed.position", "documents.text", "documents.row"),
    *("documents.json", "documents.year"),
]
VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 20) | st.floats() | st.text() | st.binary()
VALUES |= st.sampled_from(["[1000000000000]", "[-1]", "[2, 2]", "O", "<f8", "|V4", "[" * 100_000, b"\xff"])


@fuzz(0.5)
@given(data=st.data())
def test_sealed_cells_that_are_wrong(index, data):
    """By a stranger who makes the checksums right."""
    whole, path = index
    shutil.copy(whole, path)
    table, column = data.draw(st.sampled_from(CELLS)).split(".")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        row, old = data.draw(st.sampled_from(connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()))
        if isinstance(old, str) and old.startswith("{"):
            record = data.draw(damaged_json(json.loads(old)))
            new = json.dumps(seal(record) if isinstance(record, dict) else record)
        else:
            new = data.draw(VALUES | damaged(old) if isinstance(old, bytes) else VALUES)
        content = new if isinstance(new, bytes) else b""
        with contextlib.suppress(sqlite3.Error):  # a name twice, a number that is no number
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [new, row])
            if column == "data":
                sums = {"pages": zlib.crc32(content), "files": hashlib.sha256(content).hexdigest()}
                connection.execute(f"UPDATE {table} SET checksum = ? WHERE rowid = ?", [sums[table], row])
        connection.commit()
    read(path)


@pytest.fixture(scope="module")
def view():
    return Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean").view.cut(VECTORS.shape[1], False)


@pytest.mark.slow
@fuzz(0.5)
@given(data=st.data())
def test_damaged_files_of_the_store_are_mended(view, tmp_path_factory, data):
    """Never an error, never other numbers: what is damaged counts as not there."""
    root = tmp_path_factory.getbasetemp() / "store"
    shutil.rmtree(root, ignore_errors=True)
    keys, rows = [bytes([row]) * 16 for row in range(len(VECTORS))], np.arange(len(VECTORS))
    space = _Space(root, view, keys)
    space.put(rows, VECTORS)
    space.save()
    space.path.write_bytes(data.draw(damaged(space.path.read_bytes())))
    with warnings.catch_warnings(action="ignore"):
        for _ in range(2):
            found, error = attempt(lambda: _Space(root, view, keys))
            assert error is None
            np.testing.assert_array_equal(found.vectors[found.known], VECTORS[found.known])
            found.put(rows, VECTORS)
            found.save()
