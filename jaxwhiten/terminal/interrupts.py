"""Ctrl-C ends a program with exit code 130, whatever the program is doing.

Python raises KeyboardInterrupt in the main thread; unwinding removes half-written files. Three places lose the
exception. An import that is interrupted half way may raise anything. A callback from compiled code, such as XLA's at
garbage collection, prints the exception and continues. Compiled code that runs for minutes does not notice it. This
module ends the process in these three cases. It imports only the standard library, so that a program can call `handle`
first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any, NoReturn

EXIT_CODE = 130
STOPPED = 128 + signal.SIGTERM  # of a process that has saved its work when it was asked to end
MESSAGE = "interrupted; files that were there before are intact"
# Seconds that unwinding may take before the process is ended without it.
_GRACE_SECONDS = 5.0

# Temporary files and folders to remove when the process ends without unwinding.
unfinished: set[str] = set()
# What of the work at hand will not have to be done again, for the message.
kept = ""

_asked = False
_ending = threading.Lock()


def handle() -> None:
    """Makes Ctrl-C end this process; a program calls it once, in the main thread.

    A process started with SIGINT ignored, as shells start background processes, keeps ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook = _uncaught
    sys.unraisablehook = _swallowed
    if os.name == "posix":
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=_watch, args=(read,), name="interrupts", daemon=True).start()


def asked() -> bool:
    """Whether Ctrl-C was pressed: a later error may be its consequence."""
    return _asked


def end() -> NoReturn:
    """Ends the process at once, without waiting for threads or pipes."""
    for path in list(unfinished):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    if _ending.acquire(blocking=False):
        with contextlib.suppress(OSError):
            os.write(2, f"{'; '.join(filter(None, [MESSAGE, kept]))}\n".encode())
    os._exit(EXIT_CODE)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked or _importing(frame):
        end()
    _asked = True
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _watch(signals: int) -> None:
    """Ends the process some seconds after a signal, even if the main thread never sees the signal.

    A handler that someone else installed is respected: training saves a checkpoint first.
    """
    while caught := os.read(signals, 64):
        if signal.SIGINT in caught and signal.getsignal(signal.SIGINT) is _interrupt:
            time.sleep(_GRACE_SECONDS)
            end()


def _swallowed(unraisable: Any) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        end()
    sys.__unraisablehook__(unraisable)


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if _asked or issubclass(kind, KeyboardInterrupt):
        end()
    sys.__excepthook__(kind, error, traceback)
