"""`benchmarks.accelerator` on a machine without one: it runs, and reports every part."""

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
    parity, codes, combined = (
        [json.loads(line) for line in (made / f"{name}.jsonl").read_text().splitlines()]
        for name in ("accelerator/parity", "accelerator/codes", "accelerator")
    )
    assert combined[0]["parts"] == {"parity": parity[0], "codes": codes[0]}
    assert combined[0]["missing"]["encode"] == "not run"
    rows = {"parity": parity[1:], "codes": codes[1:]}
    assert combined[1:] == [{"part": name, **row} for name, of_part in rows.items() for row in of_part]
    for row in rows["parity"]:
        assert row["largest_difference"] < (1e-4 if row["vectors"].startswith("float32") else 5e-2)
    for row in rows["codes"]:
        assert row["same_neighbours"] > 0.99
        assert min(row["milliseconds"].values()) > 0
