"""NPY files of vectors, an index folder, and a file of the embedding store."""

import hashlib
import io as bytes_io
import json
import shutil
import struct
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxwhiten import Encoder
from jaxwhiten.commands.vectors import open_vectors
from jaxwhiten.encoding.store import _Space
from jaxwhiten.errors import DataError, FormatError
from jaxwhiten.search import build_index, load_index
from tests.fuzz.common import attempt, damaged, fuzz

VECTORS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


def npy(array):
    out = bytes_io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def with_header(text, body=b"\0" * 64):
    text = text.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


WORDS = st.sampled_from(
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999, 99999999999999), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2**63, 4), }",
        "{'descr': '<f4', 'fortran_order': 7, 'shape': (3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4), }",
        "{'descr': '<U999999999', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }",
        "-" * 9000 + "1",
        "(" * 9000,
        "[" * 900 + "]" * 900,
        "{" * 50,
        "__import__('os').system('true')",
        "'\\ud800'",
        "",
    ]
)


@fuzz()
@given(data=st.binary(max_size=60) | damaged(npy(VECTORS)) | damaged(npy(VECTORS)[:80]) | WORDS.map(with_header))
@example(data=b"PK\x03\x04" + b"\0" * 40)  # numpy takes it for a zip of arrays
@example(data=b"PK\x05\x06" + b"\0" * 18)
@example(data=b"\x80\x04N.")  # a pickle
@example(data=with_header("-" * 9000 + "1"))
@example(data=with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808, 4), }"))
def test_npy_files(tmp_path, data):
    path = tmp_path / "v.npy"
    path.write_bytes(data)
    with warnings.catch_warnings(action="ignore"):  # numpy tells headers of Python 2
        found, error = attempt(lambda: open_vectors(str(path)), names="v.npy")
    if found is None:
        assert isinstance(error, DataError)
        return
    assert found.ndim == 2
    assert found.dtype.kind in "fiu"
    assert found.nbytes <= len(data)
    np.array(found)


@pytest.fixture(scope="module", params=["jax", "faiss-flat"])
def index(request, tmp_path_factory):
    """An index folder, and a second place where it is damaged."""
    folder = tmp_path_factory.mktemp("index") / "whole"
    build_index(VECTORS, request.param, documents=[f"text {i}" for i in range(len(VECTORS))]).save(folder)
    return folder, folder.parent / "damaged"


def copied(index):
    whole, place = index
    shutil.rmtree(place, ignore_errors=True)
    return shutil.copytree(whole, place)


def searched(folder):
    found = load_index(folder)
    return found, found.search(VECTORS[:2], 3), list(found.documents)


def check(index, folder):
    found, error = attempt(lambda: searched(folder), names=str(folder))
    if found is None:
        assert isinstance(error, FormatError)
        return
    whole = searched(index[0])
    np.testing.assert_array_equal(found[1][1], whole[1][1])
    np.testing.assert_array_equal(found[1][0], whole[1][0])
    assert found[2] == whole[2]


@pytest.mark.slow
@fuzz(0.3)
@given(data=st.data())
def test_damaged_index_files(index, data):
    """Any file, the header too: refused, or the same answers."""
    folder = copied(index)
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    check(index, folder)


def sealed(folder, header):
    """The header as its writer would seal it."""
    from jaxwhiten.io import seal

    (folder / "header.json").write_text(json.dumps(seal(header) if isinstance(header, dict) else header))


@fuzz(0.3)
@given(data=st.data())
def test_sealed_files_that_are_wrong(index, data):
    """By a stranger who makes the checksums right. FAISS's own reader is left out: it does not claim to be safe."""
    folder = copied(index)
    header = json.loads((folder / "header.json").read_text())
    names = sorted(name for name in header["files"] if name != "index.faiss")
    name = data.draw(st.sampled_from(names))
    file = folder / header["files"][name]["name"]
    if name == "documents.jsonl":
        content = data.draw(
            damaged(file.read_bytes())
            | st.sampled_from([b"", b'"x"\n', b"{\n", b"\xff\n", b"[" * 100_000, b"5\n" * 12, b'"\\ud800"\n' * 12])
        )
    else:
        content = data.draw(damaged(file.read_bytes()) | WORDS.map(with_header))
    file.write_bytes(content)
    header["files"][name] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    sealed(folder, header)
    with warnings.catch_warnings(action="ignore"):
        found, _ = attempt(lambda: searched(folder), names=str(folder))
    if found is not None:
        assert len(found[2]) == len(VECTORS)
        assert all(isinstance(text, str) for text in found[2])


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
