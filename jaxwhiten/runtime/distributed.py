"""One job over several processes: who this process is, its share of the work, and what all of them have found.

Every process runs the same program on the same input. Each takes its `share` of a sequence; `gather_rows` gives all of
them the whole again, in the order of the processes and without rounding; files are written by the process that
`is_writer`. In a job of one process nothing here communicates.

The functions that exchange something are collective: every process has to call them, in the same order.

    distributed.start("10.0.0.1:9876,0,4")
    vectors = distributed.gather_rows(encoder.encode(distributed.share(sentences)))
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from typing import Any, NoReturn, TypeVar

import numpy as np
from jaxtyping import Float64, Int64, Shaped, UInt8

from jaxwhiten.errors import InputError, JaxwhitenError, MismatchError
from jaxwhiten.lazy import jax

# A process that is silent for so long counts as dead.
HEARTBEAT_SECONDS = 20
_START_SECONDS = 300
# Those that are done wait so long for the one that writes; the dead are noticed by their heartbeat, not by this.
_END_SECONDS = 24 * 3600
# Bytes a process contributes to one exchange: bounds the memory on the devices.
_CHUNK_BYTES = 64 << 20

T = TypeVar("T")
_STATUS = re.compile(r"(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ")
_FORM = re.compile(r"(?P<address>[^,\s]+:\d+),(?P<index>\d+),(?P<count>\d+)")


def start(where: str = "") -> None:
    """Joins the processes of one job. To be called before anything else uses JAX.

    `where` is `"ADDRESS:PORT,INDEX,COUNT"`: where process 0 listens, this process's number from 0, and how many there
    are. Empty, all three come from the environment of Slurm, a TPU pod, Open MPI or Kubernetes. Gives up after five
    minutes without the others.
    """
    known: dict[str, Any] = {}
    if where:
        match = _FORM.fullmatch(where)
        if match is None or not int(match["index"]) < int(match["count"]):
            raise InputError(
                f"--distributed={where}: expected ADDRESS:PORT,INDEX,COUNT, such as 10.0.0.1:9876,0,4, with INDEX "
                "below COUNT."
            )
        known = {"coordinator_address": match["address"], "process_id": int(match["index"])}
        known |= {"num_processes": int(match["count"]), "cluster_detection_method": "deactivate"}
    # Its handler would swallow SIGTERM; training asks the processes itself (`jaxwhiten.training.loop`).
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **known,
            initialization_timeout=_START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_END_SECONDS,
        )
    except ValueError as error:
        raise InputError(
            f"--distributed: no Slurm, TPU pod, Open MPI or Kubernetes environment was found ({error}) Say where the "
            "processes meet: --distributed=ADDRESS:PORT,INDEX,COUNT."
        ) from error
    except Exception as error:  # the runtime raises its own
        raise JaxwhitenError(f"--distributed: the processes of the job did not meet ({error}).") from error


def leave(code: int) -> NoReturn:
    """Ends a process that has failed, without the goodbye that would wait for the others.

    They end too: the runtime tells them within `HEARTBEAT_SECONDS` which process died.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(1)  # those that fail of the same cause get to say so
    os._exit(code)


def is_broken_exchange(error: BaseException) -> bool:
    """Whether an error, or what caused it, is the runtime's word that another process could not be reached."""
    cause: BaseException | None = error
    while cause is not None:
        if _STATUS.match(str(cause)) and not isinstance(cause, JaxwhitenError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def await_verdict() -> None:
    """Waits until the runtime has found out which process died; it then names it and ends this one."""
    time.sleep(HEARTBEAT_SECONDS + 10)


def name() -> str:
    """What this process is called in messages."""
    return f"process {jax.process_index()} of {jax.process_count()} on {socket.gethostname()}"


def is_writer() -> bool:
    """Whether this process writes files and prints: the first one."""
    return jax.process_index() == 0


def share(items: T) -> T:
    """This process's part of a list or array that all have; the parts differ in size by at most one."""
    whole: Any = items
    part: T = whole[share_of(len(whole), jax.process_index(), jax.process_count())]
    return part


def share_of(n: int, index: int, count: int) -> slice:
    """The part of `n` items that is process `index`'s of `count`."""
    return slice(n * index // count, n * (index + 1) // count)


def gather_rows(rows: Shaped[np.ndarray, "n ..."]) -> Shaped[np.ndarray, "total ..."]:
    """The rows of all processes, in the order of the processes, bit for bit and in every process.

    Each gives as many as it has, 0 included; the other axes and the dtype have to agree.
    """
    if jax.process_count() == 1:
        return rows
    check_same("the shape of a row", [list(rows.shape[1:]), rows.dtype.str])
    found, _ = _gather_bytes(np.ascontiguousarray(rows).reshape(-1).view(np.uint8))
    return found.view(rows.dtype).reshape(sum(gather(len(rows))), *rows.shape[1:])


def gather(value: Any) -> list[Any]:
    """A JSON value of every process, in the order of the processes, in every process."""
    if jax.process_count() == 1:
        return [value]
    found, sizes = _gather_bytes(np.frombuffer(json.dumps(value).encode(), np.uint8))
    return [json.loads(part.tobytes()) for part in np.split(found, np.cumsum(sizes)[:-1])]


def _gather_bytes(data: UInt8[np.ndarray, " n"]) -> tuple[UInt8[np.ndarray, " total"], Int64[np.ndarray, " processes"]]:
    """The bytes of all processes, one after the other, and how many each gave."""
    sizes = _gather(np.array([len(data)], np.int64).view(np.uint32)).view(np.int64).ravel()
    total, first = np.empty(int(sizes.sum()), np.uint8), np.cumsum(sizes) - sizes
    each = min(_CHUNK_BYTES, -(-int(sizes.max()) // 4) * 4)
    for begin in range(0, int(sizes.max()), max(1, each)):
        padded, own = np.zeros(each, np.uint8), data[begin : begin + each]
        padded[: len(own)] = own
        for part, start, n in zip(_gather(padded.view(np.uint32)), first, np.clip(sizes - begin, 0, each), strict=True):
            total[start + begin : start + begin + n] = part.view(np.uint8)[:n]
    return total, sizes


def from_writer(value: T) -> T:
    """The writer's JSON value, in every process: for what has to be decided alike, such as which checkpoint is best."""
    return gather(value)[0]


def wait_for_all() -> None:
    """Returns when every process has come here."""
    gather(None)


def check_same(what: str, value: Any) -> None:
    """Raises MismatchError in every process, unless all give the same JSON value; it names those unlike the first."""
    values = gather(value)
    odd = [str(index) for index, other in enumerate(values) if other != values[0]]
    if odd:
        raise MismatchError(
            f"The processes do not agree on {what}: {'process' if len(odd) == 1 else 'processes'} {', '.join(odd)} "
            "and process 0 differ. Start all of them with the same command on the same files."
        )


def _gather(words: np.ndarray) -> np.ndarray:
    """uint32 arrays of one shape, stacked in the order of the processes. Integers pass every reduction unchanged."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(words)).reshape(jax.process_count(), *words.shape)


def broadcast(array: Float64[np.ndarray, " n"], source: int) -> Float64[np.ndarray, " n"]:
    """The array of process `source`, bit for bit, in every process; each gives one of the same shape."""
    from jax.experimental import multihost_utils

    words = array.view(np.uint32)
    found = multihost_utils.broadcast_one_to_all(words, is_source=jax.process_index() == source)
    return np.array(found, np.uint32).view(np.float64)
