"""Hiding packages from imports that would use them: a telemetry client, a heavy extra."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def hidden(module: str) -> Iterator[None]:
    """Makes imports in the block find a module missing, unless it is already imported."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
