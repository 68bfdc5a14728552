"""Threads and processes that change one index: two writers and six readers, kills, and two `--add` at once."""

import contextlib
import os
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from jaxwhiten.search import build_index, load_index
from tests.conftest import slow_but

SOAK = float(os.environ.get("JAXWHITEN_SOAK_SECONDS", "10"))
D = 16
EVERYTHING = np.random.default_rng(0).standard_normal((40_000, D)).astype(np.float32)
EVERYTHING /= np.linalg.norm(EVERYTHING, axis=1, keepdims=True)


def vector(id):
    return EVERYTHING[id % len(EVERYTHING)]


@pytest.mark.parametrize("backend", slow_but(["faiss-flat", "jax"], "faiss-flat"))
@pytest.mark.parametrize("seconds", [0.4, pytest.param(SOAK, marks=pytest.mark.slow, id="soak")])
def test_two_writers_and_six_readers(backend, seconds, tmp_path):
    """An id is a number whose vector every thread knows: a hit must have its cosine, and its text."""
    start = list(range(2000))
    texts = list(map(str, start))
    index = build_index(EVERYTHING[:2000], backend, documents=texts, ids=start)
    if seconds > 1:
        index.save(tmp_path / "i")
    index.hits(EVERYTHING[:4], 5)
    end, errors, counts = time.monotonic() + seconds, [], [0] * 8
    alive, barrier = [set(), set()], threading.Barrier(8)

    def write(me):
        rng, number = random.Random(me), 10_000 + me
        while time.monotonic() < end:
            new = range(number, number + 20, 2)
            number += 20
            index.add(np.stack([vector(i) for i in new]), documents=list(map(str, new)), ids=list(new))
            alive[me] |= set(new)
            some = rng.sample(sorted(alive[me]), 6)
            index.update(some[:3], np.stack([vector(i) for i in some[:3]]), documents=list(map(str, some[:3])))
            index.remove(some[3:])
            alive[me] -= set(some[3:])
            counts[me] += 1
            time.sleep(0.001)

    def read(me):
        rng = np.random.default_rng(me)
        while time.monotonic() < end:
            asked = EVERYTHING[rng.integers(0, 2000, 4)]
            for query, hits in zip(asked, index.hits(asked, 5), strict=True):
                for hit in hits:
                    assert hit.text == str(hit.id)
                    assert abs(vector(hit.id) @ query - hit.score) < 1e-4, hit
            counts[me] += 1

    def work(me):
        try:
            barrier.wait()
            (write if me < 2 else read)(me)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=seconds + 60)
        assert not thread.is_alive()
    assert not errors, errors[0]
    assert min(counts) > 0, counts
    index.save(tmp_path / "i")
    for found in (index, load_index(tmp_path / "i")):
        assert set(found.ids.tolist()) == {*start, *alive[0], *alive[1]}
        assert [document.text for document in found] == list(map(str, found.ids))


# What processes and the test agree on: each change of a writer, and the vectors of texts.
AGREED = """
import itertools, sys, time
import numpy as np
from jaxwhiten.search import load_index

def change(me, number):
    new, old = f"{me}{number}", f"{me}{number - 2}"
    what, ids = [("add", [new, f"{new}b"]), ("add", [new]), ("upsert", [old, new]), ("remove", [old])][number % 4]
    return what, {id: f"{id} {number}" for id in ids}

def vectors(texts):
    return np.stack([np.random.default_rng(list(text.encode())).standard_normal(16) for text in texts])
"""
WRITES = """
path, me, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
index = load_index(path)
print(first - 1, flush=True)
for number in itertools.count(first):
    what, new = change(me, number)
    if what == "add":
        index.add(vectors(new.values()), ids=[*new], documents=[*new.values()])
    elif what == "upsert":
        index.upsert([*new], vectors(new.values()), documents=[*new.values()])
    else:
        assert index.remove([*new]) == 1
    print(number, flush=True)
"""
READS = """
path, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
rng, index, versions = np.random.default_rng(seed), load_index(path, read_only=True), set()
print("ready", flush=True)
end = time.time() + seconds
while time.time() < end or len(versions) < 2:
    for hits in index.hits(rng.standard_normal((4, 16)).astype(np.float32), 5):
        assert len({hit.id for hit in hits}) == 5
        assert all(hit.text.partition(" ")[0] == hit.id for hit in hits), hits
    versions.add(index.state.version)
"""
agreed = {}
exec(AGREED, agreed)


def documents_of(me, count):
    """The documents of a writer after so many changes."""
    found = {}
    for number in range(count):
        what, new = agreed["change"](me, number)
        found = {id: text for id, text in found.items() if id not in new} | (new if what != "remove" else {})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"bytes": 8, "tuned": True}], ids=["floats", "codes"])
def test_writers_that_are_killed_and_readers_of_one_file(options, tmp_path):
    """Four writers, which are killed again and again in the middle of their work, and four readers."""
    pytest.importorskip("faiss")
    path, rng, counts = tmp_path / "docs.db", random.Random(0), dict.fromkeys("abcd", 0)
    start = {f"s{number}": f"s{number} 0" for number in range(600)}
    vectors = agreed["vectors"]
    build_index(vectors(start.values()), ids=list(start), documents=list(start.values()), **options).save(path)

    def started(program, *words):
        command = [sys.executable, "-c", AGREED + program, str(path), *map(str, words)]
        process = processes.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        processes.callback(process.kill)
        return process

    for round in range(8):
        with contextlib.ExitStack() as processes:
            writers = {me: started(WRITES, me, count) for me, count in counts.items()}
            readers = [started(READS, SOAK / 2, number) for number in range(4 if round % 4 == 0 else 0)]
            for process in (*writers.values(), *readers):
                assert process.stdout.readline()
            time.sleep(rng.uniform(0.1, 0.6))
            assert [process.wait(SOAK + 300) for process in readers] == [0] * len(readers)
            for process in writers.values():
                assert process.poll() is None
                process.kill()
            index = load_index(path)
            there, expected = {document.id: document.text for document in index}, dict(start)
            for me, process in writers.items():
                done = max(map(int, process.communicate()[0].split()), default=counts[me] - 1) + 1
                own = {id: text for id, text in there.items() if id.startswith(me)}
                [counts[me]] = [count for count in (done, done + 1) if own == documents_of(me, count)]
                expected |= own
            assert there == expected
        fresh = build_index(vectors(there.values()), like=index, documents=list(there.values()), ids=list(there))
        (scores, ids), (wanted, expected) = (one.search(EVERYTHING[:20], 9) for one in (index, fresh))
        np.testing.assert_allclose(scores, wanted, atol=1e-5)
        np.testing.assert_array_equal(ids, expected)
