"""Vectors to files and pipes, block by block: NPY, Parquet and JSON lines.

Codes are written as bytes, with their code in a file next to them: codes.npy.code.safetensors.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import column_of
from jaxwhiten.codes.code import load_code
from jaxwhiten.errors import REASON, DataError, optional, turning
from jaxwhiten.types import Json
from jaxwhiten.vectors import with_space

STDOUT = "-"
VECTORS = (".npy", ".parquet", ".jsonl")  # endings of files of vectors
CODE = ".code.safetensors"  # ending of the code beside a file of codes
_CHECKSUM = "codes_sha256"  # of the codes, in the file of their code

# Takes the sentences of a block (None if there are none) and their vectors.
Write = Callable[[Sequence[str] | None, np.ndarray], None]


@contextlib.contextmanager
def vector_writer(path: str, dimension: int, dtype: np.dtype | type, code: Any = None) -> Iterator[Write]:
    """Opens a file for any number of vectors or codes; it gets its name after all of them are written."""
    ending = Path(path).suffix.lower()
    if path == STDOUT:
        yield _json_lines(sys.stdout)
        return
    with contextlib.ExitStack() as stack:
        beside = code and stack.enter_context(io.atomic_path(f"{path}{CODE}"))
        temporary = stack.enter_context(io.atomic_path(path))
        if ending == ".npy":
            with open(temporary, "wb") as file:
                yield from _npy(file, dimension, np.dtype(dtype))
        elif ending == ".parquet":
            yield from _parquet(temporary, dimension, np.dtype(dtype))
        else:
            with open(temporary, "w", encoding="utf-8") as text:
                yield _json_lines(text)
        if code is not None:
            code.save(beside, {_CHECKSUM: io.sha256_file(temporary)})


def _npy(file: BufferedIOBase, dimension: int, dtype: np.dtype) -> Iterator[Write]:
    """Writes a header for no rows, the rows, and then the final header: numpy reserves room for the number of rows."""

    def header(rows: int) -> int:
        file.seek(0)
        shape = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, dimension)}
        np.lib.format.write_array_header_1_0(file, shape)
        return file.tell()

    rows = 0
    start = header(0)

    def write(texts: Sequence[str] | None, block: np.ndarray) -> None:
        nonlocal rows
        file.write(np.ascontiguousarray(block, dtype).data)
        rows += len(block)

    yield write
    if header(rows) != start:
        raise AssertionError("the NPY header has grown over the first row")


def _parquet(path: Path, dimension: int, dtype: np.dtype) -> Iterator[Write]:
    pq = optional("pyarrow.parquet", "data", "Writing Parquet", "pyarrow")
    import pyarrow as pa

    embedding = pa.list_(pa.from_numpy_dtype(dtype), dimension)
    schema = pa.schema([("text", pa.string()), ("embedding", embedding)])
    with pq.ParquetWriter(path, schema) as writer:

        def write(texts: Sequence[str] | None, block: np.ndarray) -> None:
            column = column_of(np.asarray(block, dtype))
            text = pa.array([None] * len(block) if texts is None else texts, pa.string())
            writer.write_table(pa.table([text, column], schema=schema))

        yield write


def _json_lines(file: Any) -> Write:
    def write(texts: Sequence[str] | None, block: np.ndarray) -> None:
        for number, vector in enumerate(block.tolist()):
            row: Json
            row = {} if texts is None else {"text": texts[number]}
            file.write(json.dumps({**row, "embedding": vector}, ensure_ascii=False) + "\n")
        file.flush()

    return write


def open_vectors(path: str) -> np.ndarray:
    """Memory-maps a `.npy` file of vectors, or of codes whose code is in the file next to it."""
    unreadable = f"{path}: not a readable .npy file ({REASON})."
    with (
        turning(DataError, unreadable, OSError, ValueError),
        turning(DataError, f"{path}: no such file.", FileNotFoundError),
    ):
        array = io.map_array(path)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(f"{path}: holds {array.dtype} of shape {array.shape}, expected numbers [n, d].")
    if array.dtype.itemsize > 1:
        return array
    if not (beside := Path(f"{path}{CODE}")).is_file():
        raise DataError(
            f"{path}: contains codes, but {beside.name}, which describes them, is missing, so they cannot be decoded"
            ": write both with `jaxwhiten encode`, or save the code there with code.save."
        )
    code = load_code(beside)
    if array.shape[1] != code.nbytes or code.provenance.get(_CHECKSUM) not in (None, io.sha256_file(path)):
        raise DataError(f"{path}: {beside.name} does not match these codes: rewrite both with `jaxwhiten encode`.")
    return with_space(array, None, code)
