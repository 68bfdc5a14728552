"""One job over several processes: each process's number, and exchange of results.

Every process runs the same program on the same input. The process that `is_writer` writes files. In a job of one
process nothing is communicated.

Functions that exchange data are collective: every process has to call them, in the same order.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxwhiten.errors import MismatchError
from jaxwhiten.types import Float64, Int64, UInt8


def is_writer() -> bool:
    """Whether this process writes files and prints: the first one."""
    return jax.process_index() == 0


def gather(value: object) -> list[Any]:
    """The JSON values of all processes, in every process, in the order of the processes."""
    if jax.process_count() == 1:
        return [value]
    gathered, sizes = gather_bytes(np.frombuffer(json.dumps(value).encode(), np.uint8))
    return [json.loads(part.tobytes()) for part in np.split(gathered, np.cumsum(sizes)[:-1])]


def gather_bytes(data: UInt8[np.ndarray, " n"]) -> tuple[UInt8[np.ndarray, " total"], Int64[np.ndarray, " processes"]]:
    """The concatenated bytes of all processes, and the number of bytes of each."""
    sizes = _gather(np.array([len(data)], np.int64).view(np.uint32)).view(np.int64).ravel()
    padded = np.zeros(4 * (1 + int(sizes.max()) // 4), np.uint8)
    padded[: len(data)] = data
    parts = zip(_gather(padded.view(np.uint32)), sizes, strict=True)
    return np.concatenate([part.view(np.uint8)[:size] for part, size in parts]), sizes


def check_same(what: str, value: object) -> None:
    """Raises MismatchError in every process if a JSON value differs between them; names those unlike process 0."""
    values = gather(value)
    odd = [str(index) for index, other in enumerate(values) if other != values[0]]
    if odd:
        raise MismatchError(
            f"The processes do not agree on {what}: {'process' if len(odd) == 1 else 'processes'} {', '.join(odd)} "
            "and process 0 differ. Start all of them with the same command on the same files."
        )


def _gather(words: np.ndarray) -> np.ndarray:
    """Stacks uint32 arrays of one shape in the order of the processes. Integers pass every reduction unchanged."""
    return np.asarray(multihost_utils.process_allgather(words)).reshape(jax.process_count(), *words.shape)


def broadcast(array: Float64[np.ndarray, " n"], source: int) -> Float64[np.ndarray, " n"]:
    """The array of process `source` in every process, bit for bit; all processes pass an array of the same shape."""
    words = array.view(np.uint32)
    received = multihost_utils.broadcast_one_to_all(words, is_source=jax.process_index() == source)
    return np.array(received, np.uint32).view(np.float64)
