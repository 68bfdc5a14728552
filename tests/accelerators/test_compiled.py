"""The library's programs for accelerators, by the accelerators' own compilers; no such device is needed.

The default run compiles small programs for one kind of TPU and, where their compiler is installed, for an H100; the
slow test compiles all, which takes most of an hour on two cores (`experiments/aot.sh` writes what it finds into
docs/evidence/accelerators.md).
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from eval.runs import Run
from tests.accelerators.aot import ENVIRONMENT, PAGE, PLACE, REPORTS, table
from tests.accelerators.laboratory import TARGETS
from tests.accelerators.programs import FAULTS, PROGRAMS
from tests.conftest import ROOT

QUICK = [program.name for program in PROGRAMS if not program.slow]


# A module of each compiler, and what installs it.
COMPILERS = {
    "v5e": ("libtpu", "the TPU's compiler: pip install 'jaxwhiten[aot]'"),
    "h100": ("jax_cuda12_plugin", "the GPU's compiler and cuDNN, see docs/evidence/accelerators.md"),
}


def compiled(target, *arguments):
    """What a compiler says, by program. A process of its own: libtpu takes signals and locks a file."""
    module, how = COMPILERS[target if target in COMPILERS else "v5e"]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {how}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.accelerators.aot", "--targets", target, *arguments],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | {"XLA_FLAGS": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {report["program"]: report for report in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def quick():
    return functools.cache(lambda target: compiled(target, "--quick", "--faults"))


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("target", COMPILERS)
def test_it_compiles_and_does_what_it_may(quick, name, target):
    report = quick(target)[name]
    assert "error" not in report, report["error"]
    assert report["faults"] == []


@pytest.mark.parametrize(
    ("target", "word"), [(name, word) for name in COMPILERS for word in FAULTS if FAULTS[word].is_for(TARGETS[name])]
)
def test_a_planted_fault_is_found(quick, target, word):
    report = quick(target)[FAULTS[word].name]
    assert any(word in fault for fault in report["faults"]), report


def test_the_reduction_is_one_all_reduce_in_float32(quick):
    report = quick("v5e")["reduce rows, 256 × 64"]
    assert report["collectives"] == {"all-reduce f32": 1}
    assert report["temporaries"] == 0


def test_long_rows_are_cudnns_on_a_gpu(quick):
    assert quick("h100")["encode, tiny, rows of 256"]["kernels"] == {"__cudnn$fmhaScaleBiasSoftmax": 1}
    assert quick("h100")["encode, tiny, rows of 128"]["kernels"] == {}


def test_the_page_has_the_tables_of_the_reports_kept():
    places = list(PLACE.finditer((ROOT / PAGE).read_text()))
    assert {place["target"] for place in places} & set(COMPILERS)
    for place in places:
        found = table(Run.load(ROOT / REPORTS).rows, place["target"], place["programs"])
        assert place["table"] == f"\n{found}\n\n"
        assert len({line.count("|") for line in found.splitlines()}) == 1
        assert len(found.splitlines()) > 2, f"{place[1]} shows no program"


@pytest.mark.slow
@pytest.mark.skipif("JAXWHITEN_AOT" not in os.environ, reason="takes most of an hour: set JAXWHITEN_AOT=1")
@pytest.mark.parametrize("target", TARGETS)
def test_every_program_for_every_target(target):
    reports = compiled(target)
    wrong = {name: r.get("error") or r["faults"] for name, r in reports.items() if "error" in r or r["faults"]}
    assert not wrong, wrong
    assert len(reports) == sum(program.is_for(TARGETS[target]) for program in PROGRAMS)
