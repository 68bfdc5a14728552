"""Threads and processes that change one index: two writers and six readers, kills, and two `--add` at once."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten.search import build_index, load_index

ROOT = Path(__file__).resolve().parents[2]
SOAK = float(os.environ.get("JAXWHITEN_SOAK_SECONDS", "10"))
D = 16
EVERYTHING = np.random.default_rng(0).standard_normal((40_000, D)).astype(np.float32)
EVERYTHING /= np.linalg.norm(EVERYTHING, axis=1, keepdims=True)


def vector(id):
    return EVERYTHING[id % len(EVERYTHING)]


@pytest.mark.parametrize("backend", ["faiss-flat", "jax"])
@pytest.mark.parametrize("seconds", [0.6, pytest.param(SOAK, marks=pytest.mark.slow, id="soak")])
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


WRITES = """
import json, random, sys
import numpy as np
from jaxwhiten.search import load_index
path, log, me, seed = sys.argv[1:]
rng = random.Random(int(seed))
index = load_index(path)
own = {document.id: document.text for document in index if document.id.startswith(f"{me}-")}
print("ready", flush=True)
with open(log, "a") as file:
    for number in range(10**9):
        version = f"{seed}.{number}"
        what = rng.choice(["add", "upsert", "remove"]) if len(own) > 20 else "add"
        ids = [f"{me}-{version}-{i}" for i in range(3)] if what == "add" else rng.sample(sorted(own), 2)
        if what == "upsert":
            ids.append(f"{me}-{version}")
        texts = [f"{id} {version}" for id in ids]
        vectors = np.stack([np.random.default_rng(list(text.encode())).standard_normal(16) for text in texts])
        after = {id: text for id, text in own.items() if id not in ids}
        if what != "remove":
            after |= dict(zip(ids, texts))
        print(json.dumps(["begun", ids, after]), file=file, flush=True)
        if what == "add":
            index.add(vectors, ids=ids, documents=texts)
        elif what == "upsert":
            index.upsert(ids, vectors, documents=texts)
        else:
            assert index.remove(ids) == len(ids)
        own = after
        print(json.dumps(["done"]), file=file, flush=True)
"""
READS = """
import sys, time
import numpy as np
from jaxwhiten.search import load_index
path, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(seed)
index = load_index(path, read_only=True)
print("ready", flush=True)
end, count, versions = time.time() + seconds, 0, set()
while time.time() < end:
    for hits in index.hits(rng.standard_normal((4, 16)).astype(np.float32), 5):
        assert len({hit.id for hit in hits}) == 5
        for hit in hits:
            assert hit.text.partition(" ")[0] == hit.id, hit
    versions.add(index.state.version)
    count += 1
assert len(versions) > 1
print(count)
"""


def vector_of(text):
    return np.random.default_rng(list(text.encode())).standard_normal(D).astype(np.float32)


def expected_of(log):
    """The documents of a writer by id after the changes that were done, and after one that was begun."""
    done, begun = {}, {}
    for line in log.read_text().splitlines() if log.exists() else ():
        event = json.loads(line)
        if event[0] == "begun":
            begun = event[2]
        else:
            done = begun
    return done, begun


def check_file(path, logs, start):
    """The documents in the file, which are those of all writers' logs; the logs are cut to what was done."""
    index = load_index(path)
    there = {document.id: document.text for document in index}
    documents = dict(start)
    for me, log in logs.items():
        own = {id: text for id, text in there.items() if id.startswith(f"{me}-")}
        done, begun = expected_of(log)
        assert own in (done, begun)
        documents |= own
        log.write_text(json.dumps(["begun", [], own]) + "\n" + json.dumps(["done"]) + "\n")
    assert there == documents
    ids = list(there)
    fresh = build_index(
        np.stack([vector_of(there[id]) for id in ids]), like=index, documents=[there[id] for id in ids], ids=ids
    )
    queries = EVERYTHING[:20]
    np.testing.assert_allclose(index.search(queries, 9)[0], fresh.search(queries, 9)[0], atol=1e-5)
    np.testing.assert_array_equal(index.search(queries, 9)[1], fresh.search(queries, 9)[1])


@pytest.fixture
def child():
    """Starts a process, which does not outlive the test."""
    with contextlib.ExitStack() as processes:

        def start(program, *words):
            command = [sys.executable, "-c", program, *map(str, words)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = processes.enter_context(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            )
            processes.callback(process.kill)
            return process

        yield start


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"bytes": 8, "tuned": True}], ids=["floats", "codes"])
def test_writers_that_are_killed_and_readers_of_one_file(options, child, tmp_path):
    """Four writers, of which one is killed again and again in the middle of its work, and four readers."""
    pytest.importorskip("faiss")
    path, rng = tmp_path / "docs.db", random.Random(0)
    start = {f"s{number}": f"s{number} 0" for number in range(600)}
    vectors = np.stack([vector_of(text) for text in start.values()])
    build_index(vectors, ids=list(start), documents=list(start.values()), **options).save(path)
    logs = {me: tmp_path / f"{me}.log" for me in "abcd"}
    kills = 0
    for seed in range(8):
        writers = [child(WRITES, path, log, me, seed) for me, log in logs.items()]
        readers = [child(READS, path, SOAK / 2, number) for number in range(4 if seed % 4 == 0 else 0)]
        for process in (*writers, *readers):
            assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.1, 0.6))
        for process in readers:
            assert int(process.communicate(timeout=SOAK + 300)[0]) > 0
            assert process.returncode == 0
        for process in writers:
            kills += process.poll() is None
            process.kill()
            process.communicate()
        check_file(path, logs, start)
    assert kills == 32
