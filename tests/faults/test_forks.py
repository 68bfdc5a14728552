"""In a process forked from one that computed with threads, every door raises instead of waiting for ever."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ONE_DEVICE, ROOT

pytest.importorskip("faiss", reason="the extra cpu")

PROGRAM = """
import os, signal, sys, traceback
import numpy as np
import jaxwhiten
from jaxwhiten.errors import JaxwhitenError

rng = np.random.default_rng(0)
x = rng.standard_normal((3000, 64)).astype(np.float32)
flat, on_jax = jaxwhiten.build_index(x), jaxwhiten.build_index(x, "jax")
DOORS = {
    "FAISS, built": lambda: jaxwhiten.build_index(x),
    "FAISS, coded": lambda: jaxwhiten.build_index(x, bytes=8),
    "FAISS, searched": lambda: flat.search(x[:9], 3),
    "JAX, searched": lambda: on_jax.search(x[:9], 3),
    "semantic_search": lambda: jaxwhiten.semantic_search(x[:9], x),
    "Whitening.fit": lambda: jaxwhiten.Whitening().fit(x),
    "Moments.update": lambda: jaxwhiten.Moments().update(x),
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_no_door_hangs_in_a_forked_process(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": ONE_DEVICE, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    environment["NPROC"] = "2"  # a single core takes no threads
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=400)
    *doors, single = done.stdout.splitlines()
    assert len(doors) == 7, done.stderr
    assert [line for line in doors if not line.endswith(": spawn")] == []
    assert single == "one query: 0"
