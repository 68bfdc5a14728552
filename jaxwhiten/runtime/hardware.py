"""The devices and cores of this process, and the memory it has used."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from jaxwhiten.errors import InputError, JaxwhitenError

_process: int | None = None  # the process that first used devices; a forked process inherits the number


def cores() -> int:
    """The cores this process may use, possibly fewer than the machine has; `NPROC` limits them, as it limits XLA's."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("NPROC", "")
    return max(1, min(found, int(limit))) if limit.isdecimal() else found


def check_process() -> None:
    """Raises JaxwhitenError in a process forked from one that computed with threads, where a call would never end."""
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise JaxwhitenError(
            f"Process {os.getpid()} was forked from process {_process}, which had used its threads, and lacks"
            ' them: start processes with multiprocessing.get_context("spawn"), and load encoders and indexes in them.'
        )


def check_devices() -> None:
    """Raises InputError if no device of $JAX_PLATFORMS is found, and JaxwhitenError as `check_process` does."""
    import jax

    check_process()
    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:
        platforms = os.environ.get("JAX_PLATFORMS")
        raise InputError(
            f"JAX finds no device of JAX_PLATFORMS={platforms} here: unset it ({error!r:.200})."
        ) from error


def platform() -> str:
    """The platform of JAX's default devices, such as `"cpu"`."""
    import jax

    return jax.default_backend()


def describe() -> str:
    """The devices of JAX as text, such as `"2 CPU cores"`."""
    import jax

    kind = jax.devices()[0].device_kind
    return f"{cores()} CPU cores" if kind == "cpu" else f"{jax.device_count()} × {kind}"


def free_memory() -> float:
    """The bytes free on the first local device, or in main memory for a CPU; infinite if that is not known."""
    import jax

    stats, meminfo = jax.local_devices()[0].memory_stats() or {}, Path("/proc/meminfo")
    if "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats["bytes_in_use"])
    lines = meminfo.read_text().splitlines() if meminfo.is_file() else ()
    return next((int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable:")), math.inf)


def peak_memory() -> float | None:
    """The peak memory of this process in GB (10⁹ bytes); None if the system does not report it."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.is_file() else ():
        if line.startswith("VmHWM:"):  # getrusage would count what the process that started this one had held
            return int(line.split()[1]) * 1024 / 1e9
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
