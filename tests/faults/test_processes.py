"""What a process keeps; and forked from one that computed with threads: every door raises instead of waiting."""

import os
import subprocess
import sys

import pytest


def run(program, *arguments, cores="2", timeout=400):
    """The words that a program prints, in a process of its own; a single core takes no threads."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "NPROC": cores}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


MEMORY = """
import ctypes, gc
from jaxwhiten import Encoder
sizes = []
def memory():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
"""
SHAPES = """
import random, sys
from jaxwhiten.engines import openvino
openvino._RECORDS = int(sys.argv[1])
encoder = Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", engine="openvino")
shapes = [(rows, words) for rows in range(1, 11) for words in range(1, 61)]
random.Random(0).shuffle(shapes)
for number, (rows, words) in enumerate([(10, 60), *shapes[:240]]):
    encoder.encode(["a " * words] * rows)
    if number % 120 == 0:
        sizes.append(memory())
print(sizes[2] - sizes[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_new_shapes_of_batches_keep_no_memory(monkeypatch):
    """Beyond a number of them; oneDNN's own cache, of 1,024 programs for the whole process, is left out."""
    pytest.importorskip("openvino", reason="the extra cpu")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0")
    bounded, unbounded = (float(run(MEMORY + SHAPES, records)) for records in ("50", "5000"))
    assert bounded < 5 < 10 < unbounded, (bounded, unbounded)


DOORS = """
import os, signal
import numpy as np
import jaxwhiten
from jaxwhiten.errors import JaxwhitenError

rng = np.random.default_rng(0)
x = rng.standard_normal((3000, 64)).astype(np.float32)
read = lambda: jaxwhiten.Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean")
encoder, flat, on_jax = read(), jaxwhiten.build_index(x), jaxwhiten.build_index(x, "jax")
DOORS = {
    "FAISS, built": lambda: jaxwhiten.build_index(x),
    "FAISS, coded": lambda: jaxwhiten.build_index(x, bytes=8),
    "FAISS, searched": lambda: flat.search(x[:9], 3),
    "JAX, searched": lambda: on_jax.search(x[:9], 3),
    "semantic_search": lambda: jaxwhiten.semantic_search(x[:9], x),
    "Whitening.fit": lambda: jaxwhiten.Whitening().fit(x),
    "Moments.update": lambda: jaxwhiten.Moments().update(x),
    "Encoder.encode": lambda: encoder.encode("A man"),
    "Encoder.from_pretrained": lambda: read().encode("A man"),
}
for door in DOORS.values():
    door()
flat.search(x[:1], 3)
for name, door in DOORS.items():
    if not (child := os.fork()):
        signal.alarm(30)
        try:
            door()
            outcome = "done"
        except JaxwhitenError as error:
            outcome = "spawn" if 'get_context("spawn")' in str(error) else str(error)
        print(f"{name}: {outcome}", flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(f"{name}: ended by {status}", flush=True)
if not (child := os.fork()):
    signal.alarm(30)
    print(f"one query: {flat.search(x[:1], 3)[1][0, 0]}", flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_no_door_hangs_in_a_forked_process():
    pytest.importorskip("faiss", reason="the extra cpu")
    *doors, single = run(DOORS).splitlines()
    assert len(doors) == 9
    assert [line for line in doors if not line.endswith(": spawn")] == []
    assert single == "one query: 0"


ALONE = """
import numpy as np
import jaxwhiten
texts = [f"A man and {number} dogs." for number in range(150)]
encoder = jaxwhiten.Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", engine="jax")
vectors = np.asarray(encoder.encode(texts))
whitened = jaxwhiten.Whitening(8).fit(vectors).transform(vectors)
scores = [jaxwhiten.build_index(vectors, "jax", **how).search(vectors, 3)[0] for how in ({}, {"bytes": 8})]
print(" ".join(f"{np.abs(x).sum(dtype=np.float64):.3f}" for x in (vectors, whitened, *scores)))
"""


@pytest.mark.slow
def test_one_core_gives_what_two_give():
    one, two = ([float(word) for word in run(ALONE, cores=cores).split()] for cores in "12")
    assert one == pytest.approx(two, rel=1e-4)
