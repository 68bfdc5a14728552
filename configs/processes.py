"""A job of several processes: how they meet, the share of each, and rows that all of them get.

processes.start("10.0.0.1:9876,0,4")
vectors = processes.gather_rows(encoder.encode(processes.share(sentences)))
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import jax
import numpy as np

from jaxwhiten.errors import REASON, InputError, JaxwhitenError, turning
from jaxwhiten.runtime.distributed import check_same, gather, gather_bytes
from jaxwhiten.types import Shaped

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
    gathered, _ = gather_bytes(np.ascontiguousarray(rows).reshape(-1).view(np.uint8))
    return gathered.view(rows.dtype).reshape(sum(gather(len(rows))), *rows.shape[1:])
