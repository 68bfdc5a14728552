"""A program on an engine, in a process group of its own, and moments beside one pass over the vectors."""

import os
import signal
import subprocess
import sys

import numpy as np

from jaxwhiten import Moments
from tests.conftest import ROOT


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
