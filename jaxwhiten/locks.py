"""Locks for threads that share an object, and for processes that write to one folder."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from jaxwhiten.errors import OutputError, warn

LOCK = ".lock"
_SECONDS = 600.0  # a writer waits this long for another
_PAUSE = 0.001  # seconds between two looks whether a turn has come
_PATIENCE = 0.5  # seconds until it warns that it waits


class _Turn:
    """A turn of a thread, which lasts as long as this exists."""


class SharedLock:
    """Many readers or one writer at a time, in order of arrival; a thread must not take it twice.

    An interrupt may end a turn at any line, so that the line that would give it back is not reached. Hence no turn
    counts that no frame holds any more, nor an earlier one of the thread that comes again.
    """

    def __init__(self) -> None:
        self._turns: dict[weakref.ref[_Turn], tuple[int, bool]] = {}  # thread, and whether it writes, as they came

    @contextlib.contextmanager
    def _taken(self, writes: bool) -> Iterator[None]:
        turn = _Turn()
        own = weakref.ref(turn)
        try:
            self._turns[own] = threading.get_ident(), writes
            while self._waits(own, writes):
                time.sleep(_PAUSE)
            yield
        finally:
            self._turns.pop(own, None)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return self._taken(writes=False)

    def writing(self) -> contextlib.AbstractContextManager[None]:
        return self._taken(writes=True)

    def _waits(self, own: weakref.ref[_Turn], writes: bool) -> bool:
        """Whether a turn that came earlier keeps this one from beginning."""
        for other, (thread, other_writes) in self._turns.copy().items():
            if other is own:
                break
            if other() is None:
                self._turns.pop(other, None)
            elif thread != threading.get_ident() and (writes or other_writes):
                return True
        return False


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
