"""The devices of this machine as text, and the peak memory of this process, for headers of runs."""

from __future__ import annotations

import sys
from pathlib import Path

from jaxwhiten.runtime.hardware import cores


def devices() -> str:
    """The devices of JAX as text, such as `"2 CPU cores"`."""
    import jax

    kind = jax.devices()[0].device_kind
    if kind == "cpu":
        return f"{cores()} CPU cores"
    return f"{jax.device_count()} × {kind}"


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
