"""Ctrl-C ends a program with exit code 130, whatever it is doing.

Python raises KeyboardInterrupt in the main thread, which unwinds and removes what is half written. Three places lose
it. An import that is unwound half way may raise anything. A callback from compiled code, such as XLA's at garbage
collections, prints it and goes on. Compiled code that runs for minutes notices nothing. There it is ended from here.

Only the standard library is imported, so that a program can call `handle` before anything else.
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
MESSAGE = "interrupted; files that were there before are intact"
# What unwinding may take before the process is ended without it.
_GRACE_SECONDS = 5.0

# Temporary files and folders that are removed where a process ends without unwinding.
unfinished: set[str] = set()

_asked = False
_ending = threading.Lock()


def handle() -> None:
    """Has Ctrl-C end this process; called once by a program, in the main thread.

    A process that was started with SIGINT ignored, as shells start those in the background, goes on ignoring it.
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


def handle_in_program() -> None:
    """`handle`, called by a package when one of its modules is started by `python -m`, not when it is imported."""
    if sys.argv[:1] == ["-m"]:  # until Python has found the module, which lies inside the package
        handle()


def asked() -> bool:
    """Whether Ctrl-C was pressed: an error that is seen after that may come of it."""
    return _asked


def end() -> NoReturn:
    """Ends the process at once: neither threads nor pipes can hold it back."""
    for path in list(unfinished):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    if _ending.acquire(blocking=False):
        with contextlib.suppress(OSError):
            os.write(2, f"{MESSAGE}\n".encode())
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
    """Sees a signal though the main thread does not, and counts on nothing but the time.

    Handlers of others are left alone: training saves a checkpoint first.
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
