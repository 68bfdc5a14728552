"""`experiments/accelerator.sh` on a machine without one: it runs, and reports every part."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_it_runs_on_a_cpu(minilm, tmp_path):
    command = [sys.executable, "-m", "benchmarks.accelerator", "--only", "parity,codes"]
    environment = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    made = tmp_path / "runs/benchmarks"
    parity, codes = (json.loads((made / f"accelerator/{name}.json").read_text()) for name in ("parity", "codes"))
    combined = json.loads((made / "accelerator.json").read_text())
    assert combined["parts"] == {"parity": parity, "codes": codes}
    assert combined["missing"]["encode"] == "not run"
    for name, found in parity["vectors"].items():
        assert found["largest_difference"] < (1e-4 if name.startswith("float32") else 5e-2)
    assert codes["same_neighbours"] > 0.99
    assert min(codes["queries_per_second"].values()) > 0
