"""BLAS on all cores of the host, each of which computes on its own rows.

BLAS's own threads share every product, wait for each other after it, and idle while the rows of the next one are
prepared. Here each core prepares and multiplies its own chunks of rows while they are in its cache, and waits for none.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import threadpoolctl

Share = TypeVar("Share")
Result = TypeVar("Result")
# One call at a time: each takes all cores, and sets a limit for the process that another would lift too early.
_TURN = threading.Lock()
_LEAST_ROWS = 512  # worth a thread


@functools.cache
def _libraries() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()


def _on_one_thread() -> Any:
    """A context in which BLAS computes on the calling thread only, and after which it is as it was.

    The limit holds for the process where BLAS has one pool of threads, and for the calling thread where OpenMP gives
    every thread its own.
    """
    return _libraries().limit(limits=1, user_api="blas")


def deal(rows: range, most: int, threads: int) -> list[list[slice]]:
    """Cuts rows into chunks of about the same size and deals them out, one list per thread, the largest chunk first.

    No chunk has more than `most` rows; there are fewer lists than `threads` where each would get few rows.
    """
    threads = max(1, min(threads, len(rows) // _LEAST_ROWS))
    rounds = -(-len(rows) // (threads * most))
    each = max(1, -(-len(rows) // max(1, threads * rounds)))
    chunks = [slice(first, min(rows.stop, first + each)) for first in range(rows.start, rows.stop, each)]
    return [chunks[i::threads] for i in range(min(threads, len(chunks)))]


def on_cores(work: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """Calls `work` on every share, each on a thread of its own in which BLAS has no further threads.

    A single share is worked on by the calling thread, and BLAS keeps its threads. `work` must release the GIL while it
    computes, as NumPy does. Results come in the order of the shares; an error is raised once all shares are done.
    """
    if len(shares) == 1:
        return [work(shares[0])]
    with _TURN, _on_one_thread(), ThreadPoolExecutor(len(shares), initializer=_on_one_thread) as pool:
        return list(pool.map(work, shares))
