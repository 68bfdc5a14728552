"""The library's programs for accelerators, by the accelerators' own compilers; no such device is needed.

The default run compiles small programs for one kind of TPU; the slow test compiles all, which takes most of an hour on
two cores (`make aot` writes what it finds into docs/accelerators.md).
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.accelerators.laboratory import ENVIRONMENT, TARGETS, collectives_of
from tests.accelerators.programs import FAULTS, PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
QUICK = [program.name for program in PROGRAMS if not program.slow]


def compiled(*arguments):
    """What the compilers say, by program and target. A process of its own: libtpu takes signals and locks a file."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("needs the TPU's compiler: pip install 'jaxwhiten[aot]'")
    done = subprocess.run(
        [sys.executable, "-m", "tests.accelerators.aot", *arguments],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | {"XLA_FLAGS": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {(report["program"], report["target"]): report for report in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def quick():
    return compiled("--quick", "--faults", "--targets", "v5e")


@pytest.mark.parametrize("name", QUICK)
def test_it_compiles_and_does_what_it_may(quick, name):
    report = quick[name, "v5e"]
    assert "error" not in report, report["error"]
    assert report["faults"] == []


@pytest.mark.parametrize("word", FAULTS)
def test_a_planted_fault_is_found(quick, word):
    report = quick[FAULTS[word].name, "v5e"]
    assert any(word in fault for fault in report["faults"]), report


def test_the_reduction_is_one_all_reduce_in_float32(quick):
    report = quick["reduce rows, 256 × 64", "v5e"]
    assert report["collectives"] == {"all-reduce f32": 1}
    assert report["temporaries"] == 0


def test_collectives_are_read_from_hlo():
    text = """
  %a = (f32[8,8]{1,0:T(8,128)}, bf16[2]{0}) all-reduce(%x, %y), channel_id=1
  %b = bf16[512,256]{1,0:T(8,128)(2,1)S(1)} all-gather(%convert), channel_id=2
  %c = (f32[4]{0}, f32[4]{0}) collective-permute-start(%d), channel_id=3
  %d = f32[4]{0} fusion(%all-reduce), calls=%all-gather
"""
    expected = {"all-reduce f32": 1, "all-reduce bf16": 1, "all-gather bf16": 1, "collective-permute f32": 1}
    assert collectives_of(text) == expected


@pytest.mark.slow
@pytest.mark.skipif("JAXWHITEN_AOT" not in os.environ, reason="takes most of an hour: set JAXWHITEN_AOT=1")
@pytest.mark.parametrize("target", [name for name in TARGETS if TARGETS[name].is_tpu])
def test_every_program_for_every_tpu(target):
    reports = compiled("--targets", target)
    wrong = {key: r.get("error") or r["faults"] for key, r in reports.items() if "error" in r or r["faults"]}
    assert not wrong, wrong
    assert len(reports) == sum(program.is_for(TARGETS[target]) for program in PROGRAMS)
