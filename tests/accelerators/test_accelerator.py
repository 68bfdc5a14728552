"""`benchmarks.accelerator` on a machine without one: it runs, and reports every part."""

import subprocess
import sys

import pytest

from eval.runs import Run
from tests.conftest import ROOT


@pytest.mark.slow
def test_it_runs_on_a_cpu(minilm, tmp_path):
    command = [sys.executable, "-m", "benchmarks.accelerator", "--only", "parity,codes"]
    environment = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    made = tmp_path / "runs" / "benchmarks"
    parity, codes, combined = (
        Run.load(made / f"{name}.jsonl") for name in ("accelerator/parity", "accelerator/codes", "accelerator")
    )
    assert combined.header.missing["encode"] == "not run"
    assert [row["part"] for row in combined.rows] == ["parity"] * len(parity.rows) + ["codes"] * len(codes.rows)
    for row in parity.rows:
        assert row.largest_difference < (1e-4 if row.vectors.startswith("float32") else 5e-2)
    for row in codes.rows:
        assert row.same_neighbours > 0.99
        assert min(row.milliseconds.values()) > 0
