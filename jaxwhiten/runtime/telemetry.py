"""Packages that are hidden from others which would use them: a reporter of their use, a heavy extra."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def hidden(module: str) -> Iterator[None]:
    """Has what is imported in the block find a module missing, unless that is imported already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


def silenced() -> contextlib.AbstractContextManager[None]:
    """Has openvino and nncf imported as if the package they report with were missing.

    They would send an event from a forked process, which JAX's threads do not survive.
    """
    return hidden("openvino_telemetry")
