"""Ctrl-C at every line: a change of an index is made as a whole or not at all, and no thread keeps its lock."""

import os
import sys
import threading

import numpy as np
import pytest

import jaxwhiten
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import MismatchError
from jaxwhiten.locks import SharedLock
from jaxwhiten.search import build_index, load_index

OURS = (os.path.dirname(jaxwhiten.__file__), os.path.dirname(os.__file__) + "/contextlib.py")
VECTORS = np.random.default_rng(0).standard_normal((60, 16)).astype(np.float32)
CODE = SpectrumCode(bytes=8).fit(np.random.default_rng(1).standard_normal((900, 16)))
KINDS = {
    "floats": ("faiss-flat", {}),
    "codes": ("faiss-flat", {"codes": CODE, "rescore": "float16"}),
    "lists": ("faiss-ivf", {"codes": CODE, "nlist": 1, "nprobe": 1}),
    "jax": ("jax", {"codes": CODE}),
}
CHANGES = {
    "add": lambda index: index.add(VECTORS[40:50], **new(range(40, 50))),
    "update": lambda index: index.update(["3", "9"], VECTORS[50:52], documents=["x", "y"], metadata=[{}, {"new": 1}]),
    "remove": lambda index: index.remove(["5", "7", "39"]),
}


def new(rows):
    return {
        "ids": list(map(str, rows)),
        "documents": [f"text {r}" for r in rows],
        "metadata": [{"row": r} for r in rows],
    }


def lines_of(work, at=None):
    """How many lines of the library the work has; KeyboardInterrupt at one of them."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            count += 1
            if count == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return count


def state(index):
    found = [(hit.id, hit.score, hit.text, hit.metadata) for hits in index.hits(VECTORS[:50:7], 8) for hit in hits]
    return index.size, index.ids.tolist(), list(index.documents), list(index.metadata), found


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_made_as_a_whole_or_not_at_all(kind, change, tmp_path):
    backend, options = KINDS[kind]
    if backend != "jax":
        pytest.importorskip("faiss")
    build_index(VECTORS[:40], backend, **options, **new(range(40))).save(tmp_path)
    index = load_index(tmp_path)
    old = state(index)
    for _ in range(2):  # what is done once is not counted
        index = load_index(tmp_path)
        count = lines_of(lambda index=index: CHANGES[change](index))
    after = state(index)
    assert old != after
    seen = []
    for at in sorted({1, *np.random.default_rng(0).integers(1, count, 20).tolist(), *range(count - 15, count + 1)}):
        index = load_index(tmp_path)
        lines_of(lambda index=index: CHANGES[change](index), at)
        seen.append(state(index))
        assert seen[-1] in (old, after), at
    index.save(tmp_path / "copy")
    assert old in seen
    assert after in seen


@pytest.mark.parametrize("turn", ["reading", "writing"])
def test_an_interrupt_leaves_a_lock_free(turn):
    def take(lock):
        with getattr(lock, turn)():
            pass

    leaks = 0
    for at in range(1, lines_of(lambda: take(SharedLock())) + 1):
        lock, done = SharedLock(), threading.Event()
        lines_of(lambda lock=lock: take(lock), at)

        def write(lock=lock, done=done):
            with lock.writing():
                done.set()

        threading.Thread(target=write, daemon=True).start()
        leaks += not done.wait(5)
    assert leaks == 0


def test_a_reader_whose_frames_are_kept_does_not_stop_its_own_thread():
    lock = SharedLock()
    held = lock.reading()
    held.__enter__()  # as by an interrupt whose traceback is kept
    with lock.writing():
        pass


def test_parts_of_different_lengths_are_not_saved(tmp_path):
    index = build_index(VECTORS[:40], "jax", **new(range(40)))
    index.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("table", "documents", "metadata"):
        index = load_index(tmp_path)
        setattr(index, name, getattr(index, name).taken(np.arange(39)))
        with pytest.raises(MismatchError, match=f"39 rows in its {name}; nothing was written"):
            index.save(tmp_path)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
