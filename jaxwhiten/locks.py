"""Locks for threads that share an object, and for processes that write to one folder."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from jaxwhiten.errors import OutputError, warn

LOCK = ".lock"
_SECONDS = 600.0  # a writer waits this long for another
_PATIENCE = 0.5  # seconds until it warns that it waits


class SharedLock:
    """Many readers or one writer at a time, in order of arrival; a thread must not take it twice."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._left = threading.Condition()
        self._readers = 0

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
def locked(folder: str | os.PathLike[str], timeout: int | float = _SECONDS, *, outside: bool = False) -> Iterator[None]:
    """Keeps other processes and threads from writing to a folder; reading stays possible.

    To change an index, hold the lock from `load_index` to `Index.save`. The lock is reentrant: `save` takes it again.
    With `outside`, the lock is a file next to the folder, which may be renamed meanwhile; it is removed with the lock,
    and is not reentrant.

    >>> with locked("idx"):  # no other process changes the folder meanwhile
    ...     build_index(np.eye(4, dtype=np.float32)).save("idx")

    Raises:
      OutputError: Another writer has held it for `timeout` seconds, or the folder cannot be written to.
    """
    from filelock import FileLock, Timeout

    path = Path(folder).resolve()
    lock = FileLock(Path(f"{path}{LOCK}") if outside else path / LOCK, is_singleton=not outside)
    try:
        try:
            lock.acquire(timeout=min(timeout, _PATIENCE))
        except Timeout:
            if timeout:
                warn(f"{folder}: locked by another writer; waiting up to {timeout:.0f} s.")
            lock.acquire(timeout=timeout)
    except Timeout:
        raise OutputError(
            f"{folder}: still locked by another writer after {timeout:.0f} s; nothing was changed. Retry later, or use"
            " another folder."
        ) from None
    except OSError as error:
        raise OutputError(f"{folder}: cannot be locked for writing ({error.strerror or error}).") from error
    try:
        yield
    finally:
        if outside:
            with contextlib.suppress(OSError):
                os.unlink(lock.lock_file)
        lock.release()
