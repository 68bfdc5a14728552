"""Threads and processes that change one index: two writers and six readers, kills, and two `--add` at once."""

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

from jaxwhiten.codes import SpectrumCode
from jaxwhiten.search import build_index, load_index

ROOT = Path(__file__).resolve().parents[2]
SOAK = float(os.environ.get("JAXWHITEN_SOAK_SECONDS", "10"))
D = 16
EVERYTHING = np.random.default_rng(0).standard_normal((40_000, D)).astype(np.float32)
EVERYTHING /= np.linalg.norm(EVERYTHING, axis=1, keepdims=True)


def vector(id):
    return EVERYTHING[id % len(EVERYTHING)]


@pytest.mark.parametrize("backend", ["faiss-flat", "jax"])
@pytest.mark.filterwarnings("ignore:.*another writer")
@pytest.mark.parametrize("seconds", [0.6, pytest.param(SOAK, marks=pytest.mark.slow, id="soak")])
def test_two_writers_and_six_readers(backend, seconds, tmp_path):
    """An id is a number whose vector every thread knows: a hit must have its cosine, and its text."""
    start = list(range(2000))
    texts = list(map(str, start))
    index = build_index(EVERYTHING[:2000], backend, documents=texts, ids=start)
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
            if number % 400 == me:
                index.save(tmp_path / "i")
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
    print(f"{backend}: {sum(counts[:2])} changes, {sum(counts[2:])} searches in {seconds} s")
    index.save(tmp_path / "i")
    for found in (index, load_index(tmp_path / "i")):
        assert set(found.ids.tolist()) == {*start, *alive[0], *alive[1]}
        assert list(found.documents) == list(map(str, found.ids))
        rows = np.random.default_rng(9).integers(0, found.size, 200)
        best = found.search(np.stack([vector(i) for i in found.ids[rows]]), 1)[1][:, 0]
        assert (best % len(EVERYTHING) == found.ids[rows] % len(EVERYTHING)).mean() > 0.999


CHANGES = """
import json, random, sys
import numpy as np
from jaxwhiten.search import load_index, locked
folder, log, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(first)
print("ready", flush=True)
for number in range(first, first + count):
    with locked(folder):
        index = load_index(folder)
        there = index.ids.tolist()
        seen = index.documents[there.index("last")]  # the change before this one, by its text
        there.remove("last")
        how = rng.choice(["add", "update", "remove"]) if len(there) > 20 else "add"
        ids = [f"{number}-{i}" for i in range(3)] if how == "add" else rng.sample(there, 2)
        with open(log, "a") as file:
            print(json.dumps([str(number), seen, how, ids]), file=file, flush=True)
        x = np.random.default_rng(number).standard_normal((len(ids), 16)).astype(np.float32)
        texts = [f"{id} of {number}" for id in ids]
        if how == "add":
            index.add(x, ids=ids, documents=texts)
        elif how == "update":
            index.update(ids, x, documents=texts)
        else:
            index.remove(ids)
        index.update(["last"], np.ones((1, 16), np.float32), documents=[str(number)])
        index.save(folder)
    print(number, flush=True)  # acknowledged
"""


def replayed(log, documents, last):
    """The documents by id, each a text and a vector, after the logged changes that the next one found made."""
    changes = [json.loads(line) for line in log.read_text().splitlines()]
    made = []
    for (number, _, how, ids), seen in zip(changes, [*(change[1] for change in changes[1:]), last], strict=True):
        if number == seen:
            made.append(number)
            if how == "remove":
                documents = {id: value for id, value in documents.items() if id not in ids}
            else:
                x = np.random.default_rng(int(number)).standard_normal((len(ids), D)).astype(np.float32)
                documents = documents | {id: (f"{id} of {number}", row) for id, row in zip(ids, x, strict=True)}
    return documents | {"last": (last, np.ones(D, np.float32))}, made


READS = """
import sys, time
import numpy as np
from jaxwhiten.search import load_index
folder, end = sys.argv[1], time.time() + float(sys.argv[2])
print("ready", flush=True)
rng = np.random.default_rng(int(sys.argv[3]))
count = 0
while time.time() < end:
    index = load_index(folder)
    for hits in index.hits(rng.standard_normal((4, 16)).astype(np.float32), 5):
        for hit in hits:
            assert hit.id == "last" or hit.text.partition(" of ")[0] == hit.id, hit
            assert index.text_of(hit.id) == hit.text
    count += 1
print(count)
"""


@pytest.mark.slow
def test_four_writers_and_four_readers_of_a_folder_of_codes(tmp_path):
    pytest.importorskip("faiss")
    folder, log = tmp_path / "i", tmp_path / "log"
    start = {f"s{i}": (f"s{i}", EVERYTHING[i]) for i in range(600)} | {"last": ("none", np.ones(D, np.float32))}
    vectors, texts = np.stack([row for _, row in start.values()]), [text for text, _ in start.values()]
    code = SpectrumCode(bytes=8).fit(EVERYTHING[:2000])
    build_index(vectors, codes=code, ids=list(start), documents=texts).save(folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}

    def child(*words):
        command = [sys.executable, "-c", *map(str, words)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    writers = [child(CHANGES, folder, log, 100_000 * number, 100_000) for number in range(4)]
    readers = [child(READS, folder, SOAK, number) for number in range(4)]
    for process in [*writers, *readers]:
        assert process.stdout.readline() == "ready\n"
    read = [int(process.communicate(timeout=SOAK + 300)[0]) for process in readers]
    for process in writers:
        process.kill()
        process.communicate()
    assert min(read) > 0
    index = load_index(folder)
    documents, made = replayed(log, start, index.documents[index.ids.tolist().index("last")])
    ids = index.ids.tolist()
    assert dict(zip(ids, index.documents, strict=True)) == {id: text for id, (text, _) in documents.items()}
    fresh = build_index(np.stack([documents[id][1] for id in ids]), codes=code, ids=ids)
    for found, wanted in zip(index.search(EVERYTHING[:20], 9), fresh.search(EVERYTHING[:20], 9), strict=True):
        np.testing.assert_array_equal(found, wanted)
    print(f"{len(made)} changes by four writers, {sum(read)} loads and searches by four readers in {SOAK} s")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["faiss-flat", "jax"])
def test_random_changes_of_two_processes_with_kills_equal_the_log(backend, tmp_path):
    """At least 300 changes; of two processes one is killed in the middle of its work, again and again."""
    folder, log, rng = tmp_path / "i", tmp_path / "log", random.Random(0)
    start = {f"s{i}": (f"s{i}", EVERYTHING[i]) for i in range(30)} | {"last": ("none", np.ones(D, np.float32))}
    vectors, texts = np.stack([row for _, row in start.values()]), [text for text, _ in start.values()]
    build_index(vectors, backend, ids=list(start), documents=texts).save(folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    acknowledged, kills, number = [], 0, 0
    while len(acknowledged) < 300:
        children = []
        for _ in range(2):
            words = [sys.executable, "-c", CHANGES, str(folder), str(log), str(number), "60"]
            children.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
            number += 1000
        for child in children:
            assert child.stdout.readline() == "ready\n"
        killed, survivor = children
        acknowledged += [killed.stdout.readline().strip() for _ in range(rng.randint(1, 40))]
        time.sleep(rng.uniform(0, 0.02))  # into the change after those
        kills += killed.poll() is None
        killed.kill()
        for child in children:
            acknowledged += child.communicate(timeout=300)[0].split()
        assert survivor.returncode == 0
        index = load_index(folder)
        documents, made = replayed(log, start, index.documents[index.ids.tolist().index("last")])
        assert set(acknowledged) <= set(made)
        ids = index.ids.tolist()
        assert dict(zip(ids, index.documents, strict=True)) == {id: text for id, (text, _) in documents.items()}
        fresh = build_index(np.stack([documents[id][1] for id in ids]), backend, ids=ids)
        for found, wanted in zip(index.search(EVERYTHING[:20], 9), fresh.search(EVERYTHING[:20], 9), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert kills > 2
    print(f"{backend}: {len(acknowledged)} acknowledged changes, {kills} kills, {len(made) - len(acknowledged)} more")
