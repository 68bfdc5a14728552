"""One job over several processes: each process's number, its share of the work, and exchange of results.

Every process runs the same program on the same input. Each takes its `share` of a sequence. `gather_rows` gives all
processes the whole sequence, in the order of the processes and without rounding. The process that `is_writer` writes
files. In a job of one process nothing is communicated.

Functions that exchange data are collective: every process has to call them, in the same order.
    distributed.start("10.0.0.1:9876,0,4")
    vectors = distributed.gather_rows(encoder.encode(distributed.share(sentences)))
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxwhiten.errors import REASON, InputError, JaxwhitenError, MismatchError, turning
from jaxwhiten.types import Float64, Int64, Shaped, UInt8

# A process that is silent for this long counts as dead.
HEARTBEAT_SECONDS = 20
_START_SECONDS = 300
# Processes that are done wait this long for the writer; a dead writer is noticed earlier, by its heartbeat.
_END_SECONDS = 24 * 3600

T = TypeVar("T")
_FORM = re.compile(r"(?P<address>[^,\s]+:\d+),(?P<index>\d+),(?P<count>\d+)")


def start(where: str = "") -> None:
    """Joins the processes of one job; to be called before anything else uses JAX.

    `where` is `"ADDRESS:PORT,INDEX,COUNT"`: the address of process 0, the number of this process from 0, and the number
    of processes. If it is empty, all three come from the environment of Slurm, a TPU pod, Open MPI or Kubernetes.
    Raises JaxwhitenError if the processes do not meet within five minutes.
    """
    settings: dict[str, Any] = {}
    if where:
        match = _FORM.fullmatch(where)
        if match is None or not int(match["index"]) < int(match["count"]):
            raise InputError(
                f"--distributed={where}: expected ADDRESS:PORT,INDEX,COUNT, such as 10.0.0.1:9876,0,4, with INDEX "
                "below COUNT."
            )
        settings = {
            "coordinator_address": match["address"],
            "num_processes": int(match["count"]),
            "process_id": int(match["index"]),
            "cluster_detection_method": "deactivate",
        }
    # JAX's preemption service would swallow SIGTERM; `jaxwhiten.training.loop` asks the processes itself.
    jax.config.update("jax_enable_preemption_service", False)
    alone = (
        f"--distributed: no Slurm, TPU pod, Open MPI or Kubernetes environment was found ({REASON}) Specify the "
        "coordinator: --distributed=ADDRESS:PORT,INDEX,COUNT."
    )
    apart = f"--distributed: the processes of the job did not meet ({REASON})."
    with turning(JaxwhitenError, apart), turning(InputError, alone, ValueError):  # the runtime raises its own
        jax.distributed.initialize(
            **settings,
            initialization_timeout=_START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_END_SECONDS,
        )


def is_writer() -> bool:
    """Whether this process writes files and prints: the first one."""
    return jax.process_index() == 0


def share(items: T) -> T:
    """This process's part of a list or array that all processes have; the parts differ in size by at most one."""
    whole: Any = items
    part: T = whole[share_of(len(whole), jax.process_index(), jax.process_count())]
    return part


def share_of(n: int, index: int, count: int) -> slice:
    """The part of `n` items that belongs to process `index` of `count`."""
    return slice(n * index // count, n * (index + 1) // count)


def gather_rows(rows: Shaped[np.ndarray, "n ..."]) -> Shaped[np.ndarray, "total ..."]:
    """The rows of all processes, in every process, bit for bit and in the order of the processes.

    A process may give any number of rows, 0 included; the other axes and the dtype have to agree.
    """
    if jax.process_count() == 1:
        return rows
    check_same("the shape of a row", [list(rows.shape[1:]), rows.dtype.str])
    gathered, _ = _gather_bytes(np.ascontiguousarray(rows).reshape(-1).view(np.uint8))
    return gathered.view(rows.dtype).reshape(sum(gather(len(rows))), *rows.shape[1:])


def gather(value: object) -> list[Any]:
    """The JSON values of all processes, in every process, in the order of the processes."""
    if jax.process_count() == 1:
        return [value]
    gathered, sizes = _gather_bytes(np.frombuffer(json.dumps(value).encode(), np.uint8))
    return [json.loads(part.tobytes()) for part in np.split(gathered, np.cumsum(sizes)[:-1])]


def _gather_bytes(data: UInt8[np.ndarray, " n"]) -> tuple[UInt8[np.ndarray, " total"], Int64[np.ndarray, " processes"]]:
    """The concatenated bytes of all processes, and the number of bytes of each."""
    sizes = _gather(np.array([len(data)], np.int64).view(np.uint32)).view(np.int64).ravel()
    padded = np.zeros(4 * (1 + int(sizes.max()) // 4), np.uint8)
    padded[: len(data)] = data
    parts = zip(_gather(padded.view(np.uint32)), sizes, strict=True)
    return np.concatenate([part.view(np.uint8)[:size] for part, size in parts]), sizes


def from_writer(value: T) -> T:
    """The writer's JSON value in every process, for common decisions such as which checkpoint is best."""
    return gather(value)[0]


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
