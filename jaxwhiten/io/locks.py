"""Locks for processes that write to one folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from jaxwhiten.errors import OutputError, warn

LOCK = ".lock"
_SECONDS = 600.0  # a writer waits this long for another
_PATIENCE = 0.5  # seconds until it warns that it waits


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str], timeout: int | float = _SECONDS, *, outside: bool = False) -> Iterator[None]:
    """Keeps other processes and threads from writing to a folder; reading stays possible.

    The lock is reentrant.
    With `outside`, the lock is a file next to the folder, which may be renamed meanwhile; it is removed with the lock,
    and is not reentrant.

    >>> with locked("cross"):  # no other process writes to the folder meanwhile
    ...     write_text("cross/notes.txt", "A dog runs.")

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
