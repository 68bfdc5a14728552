"""`make accelerator` on a machine without one: it runs, and reports every part."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_it_runs_on_a_cpu(minilm, tmp_path):
    command = [sys.executable, "-m", "benchmarks.accelerator", "--quick"]
    environment = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "runs/benchmarks/accelerator.json").read_text())
    assert max(found["parity"][name] for name in ("float32", "float32, long")) < 1e-4
    assert max(found["parity"][name] for name in ("bfloat16", "bfloat16, long")) < 5e-2
    assert found["encode"]["sentences_per_second"]["jaxwhiten"] > 0
