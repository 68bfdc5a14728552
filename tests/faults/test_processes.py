"""What a process keeps, and processes made of it: programs shared by encoders, forked and spawned children."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ONE_DEVICE

ROOT = Path(__file__).resolve().parents[2]


def run(program, folder, *words, timeout=240):
    """The words that a program prints, in a process of its own."""
    path = folder / "program.py"
    path.write_text(program)
    environment = {**os.environ, "XLA_FLAGS": ONE_DEVICE, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, str(path), *map(str, words)], env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


LOADS = """
import ctypes, gc
import jax
from jaxwhiten import Encoder
compiled, sizes = [], []
def memory():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
def listen(event, seconds, **_):
    if event.endswith("backend_compile_duration"):
        compiled.append(seconds)
for number in range(30):
    Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean").encode(["A man plays a guitar.", "x " * 40])
    if number == 0:
        jax.monitoring.register_event_duration_secs_listener(listen)
    sizes.append(memory())
print(len(compiled), min(sizes[-10:]) - min(sizes[2:12]))  # the lowest: buffers are freed a little later
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_thirty_encoders_read_in_turn_keep_no_memory(tmp_path):
    compiled, growth = run(LOADS, tmp_path).split()
    assert int(compiled) == 0
    assert float(growth) < 20


PROCESSES = """
import multiprocessing, os, signal, sys
from jaxwhiten import Encoder
from jaxwhiten.errors import JaxwhitenError
def vector(model):
    return Encoder.from_pretrained(model, pooling="mean").encode("A man plays a guitar.")
if __name__ == "__main__":
    model = sys.argv[1]
    encoder, expected = Encoder.from_pretrained(model, pooling="mean"), vector(model)
    for work in (lambda: encoder.encode("A man"), lambda: vector(model)):
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                work()
            except JaxwhitenError as error:
                print(error, flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(abs(pool.apply(vector, [model]) - expected).max() < 1e-6)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_says_what_to_do_and_a_spawned_one_encodes(tiny_model, tmp_path):
    first, ended, second, also, same = run(PROCESSES, tmp_path, tiny_model).splitlines()
    assert "spawn" in first
    assert "spawn" in second
    assert (ended, also, same) == ("0", "0", "True")
