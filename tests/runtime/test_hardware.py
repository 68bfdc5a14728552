"""The cores of this process, BLAS on all of them, and compiled programs, which go to the cache folder."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
import threadpoolctl

from jaxwhiten.runtime import hardware


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_cores_are_those_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert hardware.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert hardware.cores() == len(allowed)


def test_cores_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert hardware.cores() == 7
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert hardware.cores() == 1


@pytest.fixture(autouse=True)
def libraries_of_now():
    """Other tests may have loaded a BLAS since the libraries were listed."""
    hardware._libraries.cache_clear()


def blas_threads():
    return [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("n", [0, 1, 1024, 5001])
@pytest.mark.parametrize("most", [1, 700, 10_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_row_is_dealt_once(n, most, threads):
    shares = hardware.on_cores(lambda chunks: chunks, range(10, 10 + n), most, threads)
    assert len(shares) == min(n, max(1, min(threads, n // 512)))
    chunks = sorted((chunk for share in shares for chunk in share), key=lambda chunk: chunk.start)
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(10, 10 + n))
    for share in shares:
        assert max(chunk.stop - chunk.start for chunk in share) == share[0].stop - share[0].start <= most


@pytest.mark.parametrize("count", [2, 3, 8])
def test_every_share_has_a_thread_and_one_blas_thread(count):
    before = blas_threads()
    assert before
    together = threading.Barrier(count)

    def work(chunks):
        together.wait(10)  # passes only if all of them run at the same time
        return chunks[0].start // 512, blas_threads()

    assert hardware.on_cores(work, range(512 * count), 512, count) == [(i, [1] * len(before)) for i in range(count)]
    assert blas_threads() == before


def test_a_single_share_leaves_blas_its_threads():
    before = blas_threads()
    assert hardware.on_cores(lambda _: (threading.current_thread(), blas_threads()), range(600), 600, 1) == [
        (threading.current_thread(), before)
    ]


def test_an_error_reaches_the_caller_and_blas_has_its_threads_back():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        hardware.on_cores(lambda chunks: 1 / (chunks[0].start - 512), range(1536), 512, 3)
    assert blas_threads() == before


def test_callers_side_by_side_leave_blas_its_threads():
    before = blas_threads()
    x = np.random.default_rng(0).standard_normal((300, 300))
    expected = x @ x
    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: hardware.on_cores(lambda chunks: x @ x, range(1024), 512, 2), range(16)))
        assert all(np.allclose(product, expected) for products in found for product in products)
        assert blas_threads() == before


def test_a_call_within_a_share_stays_on_its_thread():
    """It would wait for ever for the turn of the call that it is part of."""

    def share(number):
        inner = hardware.on_threads(lambda place: (place, threading.get_ident()), [0, 1, 2])
        return number, threading.get_ident(), inner

    for number, thread, inner in hardware.on_threads(share, [0, 1]):
        assert number in (0, 1)
        assert inner == [(place, thread) for place in range(3)]


@pytest.fixture
def nothing_chosen(monkeypatch, tmp_path):
    """As in a new process; afterwards the settings are as they were."""
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path))
    for name in ("JAXWHITEN_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(("own", "kept"), [(None, True), ("/elsewhere", True), (None, False)])
def test_they_are_kept_in_the_cache_folder_or_where_the_user_says(nothing_chosen, monkeypatch, own, kept):
    jax.config.update("jax_compilation_cache_dir", own)
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", str(int(kept)))
    hardware.keep_compiled()
    expected = str(nothing_chosen / "xla") if kept and own is None else own
    assert jax.config.jax_compilation_cache_dir == expected


@pytest.mark.slow
def test_a_later_process_finds_them(nothing_chosen):
    """Compilation is announced as a miss first, then as a hit."""
    code = """
import jax, jax.numpy as jnp
from jaxwhiten.runtime import hardware
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
hardware._WORTH_KEEPING = 0
hardware.keep_compiled()
jax.jit(lambda x: jnp.linalg.inv(x) @ x)(jnp.eye(3)).block_until_ready()
print(any("cache_hits" in name for name in events))
"""
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert [one.stdout.strip() for one in said] == ["False", "True"]
