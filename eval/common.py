"""What every evaluation does alike: its folder, its progress lines, and the record of machine and versions."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import jaxwhiten
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import distributed, hardware

_PACKAGES = ("jax", "flax", "numpy", "scipy", "tokenizers")


def say(text: str) -> None:
    """A line on stderr, from the process that writes."""
    if distributed.is_writer():
        print(text, file=sys.stderr, flush=True)


def now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def make_folder(folder: Path) -> None:
    """Makes the folder for results, before anything slow.

    Raises:
      InputError: It cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"config.out: {folder} cannot be made a folder ({error.strerror}).") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"config.out: {folder} cannot be written to.")


def machine() -> dict[str, Any]:
    """Cores, devices and system, and the most memory this process has held so far."""
    devices = jax.local_devices()
    return {
        "cores": hardware.cores(),
        "devices": len(devices),
        "processes": jax.process_count(),
        "device_kind": devices[0].device_kind,
        "system": platform.platform(),
        "peak_rss_gb": hardware.peak_memory(),
    }


def versions() -> dict[str, str]:
    """Versions of this project, Python and the packages that bear on the numbers."""
    found = {name: metadata.version(name) for name in _PACKAGES}
    return {"jaxwhiten": jaxwhiten.__version__, "python": platform.python_version(), **found}
