"""Packages that report their use to their makers are imported without that."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

_REPORTER = "openvino_telemetry"


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Has openvino and nncf imported as if the package they report with were missing.

    They would send an event from a forked process, which JAX's threads do not survive.
    """
    if _REPORTER in sys.modules:
        yield
        return
    sys.modules[_REPORTER] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[_REPORTER]
