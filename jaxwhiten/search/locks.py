"""Locks for threads that share an index, and for processes that write to its folder."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from jaxwhiten.errors import OutputError

LOCK = ".lock"
_SECONDS = 600.0  # a writer waits this long for another
_PATIENCE = 0.5  # seconds until it warns that it waits


class SharedLock:
    """Many readers or one writer at a time, in order of arrival; a thread must not take it twice."""

    def __init__(self) -> None:
        self._turn, self._left, self._readers = threading.Lock(), threading.Condition(), 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        with self._turn, self._left:
            self._readers += 1
        try:
            yield
        finally:
            with self._left:
                self._readers -= 1
                self._left.notify()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with self._turn, self._left:
            self._left.wait_for(lambda: not self._readers)
            yield


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str], timeout: int | float = _SECONDS) -> Iterator[None]:
    """Keeps other processes and threads from writing to an existing folder; reading stays possible.

    To change an index, hold the lock from `load_index` to `Index.save`. The lock is reentrant: `save` takes it again.

    Raises:
      OutputError: Another writer has held it for `timeout` seconds, or the folder cannot be written to.
    """
    lock = FileLock(Path(folder).resolve() / LOCK, is_singleton=True)
    try:
        try:
            lock.acquire(timeout=min(timeout, _PATIENCE))
        except Timeout:
            if timeout:
                warnings.warn(f"{folder}: another writer is at work; waiting up to {timeout:.0f} s.", stacklevel=3)
            lock.acquire(timeout=timeout)
    except Timeout:
        raise OutputError(
            f"{folder}: another writer is at work, after {timeout:.0f} s of waiting; nothing was changed. Try again"
            " after it, or name another folder."
        ) from None
    except OSError as error:
        raise OutputError(f"{folder}: cannot be locked for writing ({error.strerror or error}).") from error
    try:
        yield
    finally:
        lock.release()
