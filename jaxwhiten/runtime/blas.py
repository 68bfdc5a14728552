"""BLAS on all cores of the host, with each core on its own rows.

BLAS's own threads share every product, wait for each other after it, and idle while the next rows are prepared. Here
each core prepares and multiplies its own chunks of rows while they are in its cache, and waits for no other core.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import threadpoolctl

from jaxwhiten.runtime import hardware

Share = TypeVar("Share")
Result = TypeVar("Result")
# One call at a time: each call takes all cores and limits the threads of the process.
_TURN = threading.Lock()
_LEAST_ROWS = 512  # fewer rows are not worth a thread


@functools.cache
def _libraries() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()


def deal(rows: range, most: int, threads: int) -> list[list[slice]]:
    """Cuts rows into chunks of about the same size and deals them to threads: one list per thread, largest chunk first.

    No chunk has more than `most` rows. There are fewer lists than `threads` if each would get few rows.
    """
    threads = max(1, min(threads, len(rows) // _LEAST_ROWS))
    rounds = -(-len(rows) // (threads * most))
    each = max(1, -(-len(rows) // max(1, threads * rounds)))
    chunks = [slice(first, min(rows.stop, first + each)) for first in range(rows.start, rows.stop, each)]
    return [chunks[i::threads] for i in range(min(threads, len(chunks)))]


def on_cores(work: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """Calls `work` on every share, each in its own thread, in which BLAS has no further threads.

    A single share runs on the calling thread with BLAS's own threads. `work` must release the GIL while it computes, as
    NumPy does. Results have the order of the shares. An error is raised after all shares are done.
    """
    if len(shares) == 1:
        return [work(shares[0])]
    hardware.check_process()
    # The limit holds for the process if BLAS has one pool of threads, and for the calling thread if OpenMP gives every
    # thread its own pool. The earlier setting is restored.
    on_one_thread = functools.partial(_libraries().limit, limits=1, user_api="blas")
    with _TURN, on_one_thread(), ThreadPoolExecutor(len(shares), initializer=on_one_thread) as pool:
        return list(pool.map(work, shares))
