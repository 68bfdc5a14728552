"""A program on an engine, in a process group of its own, the rows that it reads, and what it has to write."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from tests.conftest import ROOT
from tests.sentences import generated

TEXTS = generated(400)


def write_rows(file):
    """Texts in Parquet, and after them three rows that are none."""
    pa = pytest.importorskip("pyarrow")
    texts = [text.encode() for text in TEXTS]  # Spark makes U+FFFD of what a column of strings holds
    columns = {"n": list(range(403)), "odd": [i % 2 == 1 for i in range(403)]}
    table = pa.table(columns | {"text": [*texts, None, b"x" * 10_000_000, b"\xff"]})
    pytest.importorskip("pyarrow.parquet").write_table(table, file)


def check(vectors, moments, model):
    """Vectors are those of this machine alone, and moments those of one pass over them."""
    alone = Encoder.from_pretrained(model, pooling="mean", max_length=32).encode(TEXTS)
    np.testing.assert_allclose(vectors, alone, atol=1e-6)
    equal(moments, vectors)


def run(program, folder, model, **environment):
    """What a program prints that is given a folder and a model; the engine's processes end with it."""
    (folder / "program.py").write_text(program)
    own = {"PYTHONPATH": str(ROOT), "XLA_FLAGS": "", "PYTHONWARNINGS": "ignore", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **own, **environment}
    command = [sys.executable, str(folder / "program.py"), str(folder), str(model)]
    with subprocess.Popen(
        command, env=environment, stdout=-1, stderr=-1, text=True, start_new_session=True, cwd=folder
    ) as started:
        try:
            out, err = started.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    assert started.returncode == 0, err[-3000:]
    return out


def equal(moments, rows):
    """Moments are those of one pass over rows."""
    one = Moments().update(np.asarray(rows, np.float64))
    assert moments.n == len(rows)
    np.testing.assert_allclose(moments.mean, one.mean, rtol=1e-12, atol=1e-12 * np.abs(one.mean).max())
    np.testing.assert_allclose(moments.M2, one.M2, rtol=1e-12, atol=1e-12 * np.abs(one.M2).max())
