"""The devices and cores of this process, and the cache of compiled programs."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from platform import machine, processor
from typing import TypeVar

import threadpoolctl

from jaxwhiten import io
from jaxwhiten.errors import REASON, InputError, JaxwhitenError, turning, warn

Result = TypeVar("Result")
Share = TypeVar("Share")
# One call at a time: each call takes all cores and limits the threads of the process.
_TURN = threading.Lock()
_within = threading.local()  # whether the thread does a share of a call
_WORTH_KEEPING = 0.1  # seconds of compilation
_LEAST_ROWS = 512  # fewer rows are not worth a thread
_process: int | None = None  # the process that first used devices; a forked process inherits the number


def cores() -> int:
    """The cores this process may use, possibly fewer than the machine has; `NPROC` limits them, as it limits XLA's."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    limit = os.environ.get("NPROC", "")
    if limit.isdecimal():
        return max(1, min(count, int(limit)))
    return count


def check_process() -> None:
    """Raises JaxwhitenError in a process forked from one that computed with threads, where a call would never end."""
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise JaxwhitenError(
            f"Process {os.getpid()} was forked from process {_process}, which had used its threads, and lacks"
            ' them: start processes with multiprocessing.get_context("spawn"), and load encoders and indexes in them.'
        )


def check_devices() -> None:
    """Raises InputError if no device of $JAX_PLATFORMS is found, and JaxwhitenError as `check_process` does."""
    import jax

    check_process()
    message = f"JAX finds no device of JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS')} here: unset it ({REASON})."
    with turning(InputError, message, AssertionError, RuntimeError):
        jax.devices()


def has_accelerator() -> bool:
    """Whether JAX's default devices are not CPUs; JAX is imported only if something for other devices is installed."""
    if os.environ.get("JAX_PLATFORMS") == "cpu" or not any(map(importlib.util.find_spec, ("jax_plugins", "libtpu"))):
        return False
    import jax

    return jax.default_backend() != "cpu"


@functools.cache
def cpu_features() -> str:
    """What the first CPU is and can do, as the system says."""
    info = Path("/proc/cpuinfo")
    first = info.read_text().partition("\n\n")[0] if info.is_file() else ""
    lines = [line for line in first.splitlines() if line.startswith(("flags", "Features", "model name", "CPU part"))]
    if lines:
        return "\n".join(lines)
    return f"{machine()} {processor()}"


def keep_compiled() -> None:
    """Makes JAX store compiled programs in the cache folder and load them in later runs.

    Does nothing if the user has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or set `JAXWHITEN_COMPILATION_CACHE=0`.
    """
    import jax

    cache_dir = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if cache_dir is None and os.environ.get("JAXWHITEN_COMPILATION_CACHE") != "0":
        folder = io.cache_dir("xla")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            return warn(f"{folder}: no cache ({error.strerror}); set JAXWHITEN_CACHE_DIR.")
        io.trim_cache()
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)


_libraries = functools.cache(threadpoolctl.ThreadpoolController)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Runs BLAS on the calling thread, so that results do not depend on the number of cores; shares run in turn."""
    if getattr(_within, "share", False):
        yield
        return
    with _TURN, threadpoolctl.threadpool_limits(1, user_api="blas"):
        _within.share = True
        try:
            yield
        finally:
            _within.share = False


def on_cores(work: Callable[[list[slice]], Result], rows: range, most: int, threads: int) -> list[Result]:
    """Calls `work` on shares of rows, each in its own thread, in which BLAS has no further threads.

    A share is a list of chunks of about the same size, at most `most` rows, the largest first. There are fewer shares
    than `threads` if each would get few rows. Results have the order of the shares; an error is raised after all are
    done. `work` must release the GIL while it computes, as NumPy does.

    BLAS's own threads share every product, wait for each other after it, and idle while the next rows are prepared.
    Here each core prepares and multiplies its own chunks of rows while they are in its cache. A single share runs on
    the calling thread with BLAS's own threads.
    """
    threads = max(1, min(threads, len(rows) // _LEAST_ROWS))
    rounds = -(-len(rows) // (threads * most))
    each = max(1, -(-len(rows) // max(1, threads * rounds)))
    shares: list[list[slice]] = [[] for _ in range(min(threads, -(-len(rows) // each)))]
    for number, first in enumerate(range(rows.start, rows.stop, each)):
        shares[number % threads].append(slice(first, min(rows.stop, first + each)))
    return on_threads(work, shares)


@contextlib.contextmanager
def faiss_products() -> Iterator[None]:
    """Computes distances by matrix products; below 128,000 values FAISS 1.15 avoids them, at ten times the time."""
    import faiss

    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = min(20, before)
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before


@contextlib.contextmanager
def faiss_on_one_thread() -> Iterator[None]:
    """Runs FAISS on the calling thread: a single query takes less time than waking other threads."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # OpenMP's setting is the calling thread's own
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def on_threads(work: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """`on_cores` for given shares. In a share, a further call does its own on the thread of this share."""
    if len(shares) <= 1 or getattr(_within, "share", False):
        return list(map(work, shares))
    check_process()
    # The limit holds for the process if BLAS has one pool of threads, and for the calling thread if OpenMP gives every
    # thread its own pool. The earlier setting is restored.
    on_one_thread = functools.partial(_libraries().limit, limits=1, user_api="blas")

    def begin() -> None:
        _within.share = True
        on_one_thread()

    with _TURN, on_one_thread(), ThreadPoolExecutor(len(shares), initializer=begin) as pool:
        return list(pool.map(work, shares))
