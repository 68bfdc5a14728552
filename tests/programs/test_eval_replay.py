"""`python -m eval.replay`: a claim holds if its program gives the recorded figures again, and only then."""

import math
import shutil
import subprocess
import sys

import pytest

from eval import replay
from eval.runs import Record, Run
from jaxwhiten.errors import InputError
from tests.conftest import ROOT

ROW = {
    "model": "runs/a",
    "code": "int8",
    "mrr_at_10": 0.5,
    "versus_raw": {"value": -0.4, "low": -3.0, "high": 4.0},
    "build_us": 3.0,
    "k": 8,
}


def of(row):
    return Run(Record(), [Record(row)])


@pytest.mark.parametrize(
    ("change", "points"),
    [
        ({"model": "/elsewhere", "build_us": 90.0}, 0.0),
        ({"mrr_at_10": 0.497}, 0.3),
        ({"versus_raw": {"value": -0.4, "low": -3.0, "high": 4.8}}, 0.8),
        ({"code": "binary"}, math.inf),
        ({"k": 9}, math.inf),
        ({"mrr_at_10": None}, math.inf),
    ],
)
def test_what_differs_and_by_how_much(change, points):
    compared = list(replay.differences(of(ROW), of(ROW | change)))
    assert max(
        difference.points for difference in compared if difference.points > difference.allowed or not points
    ) == pytest.approx(points)


def test_every_claim_is_listed_with_its_pages():
    lines = replay.listed().splitlines()[1:]
    assert len(lines) > 100
    (line,) = (line for line in lines if line.startswith("demo-untuned "))
    assert line.split()[1:] == ["4", "eval.sts", "docs/evidence/index.md"]
    assert any(line.startswith("tasks/minilm-mrpc ") and "docs/evidence/codes.md" in line for line in lines)


def replayed(*words, folder=ROOT):
    command = [sys.executable, "-m", "eval.replay", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_run_without_a_config_is_answered_with_its_command(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["replay", "thresholds"])
    with pytest.raises(InputError, match=r"thresholds: .*python -m eval\.thresholds"):
        replay.main()


@pytest.mark.slow
def test_a_small_claim_holds():
    """The one whose model and data ship with the package."""
    result = replayed("demo-untuned")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "demo-untuned: holds: " in result.stdout


@pytest.mark.slow
def test_a_wrong_figure_does_not_hold(tmp_path):
    for name in ("eval", "configs", "jaxwhiten", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    runs = tmp_path / "docs" / "runs"
    runs.mkdir(parents=True)
    for source in (ROOT / "docs" / "runs").glob("demo-untuned*"):
        (shutil.copytree if source.is_dir() else shutil.copy)(source, runs / source.name)
    figure = "42.21483467897513"
    [path] = (path for path in runs.rglob("*.json*") if figure in path.read_text())
    path.write_text(path.read_text().replace(figure, "42.52", 1))
    result = replayed("demo-untuned", folder=tmp_path)
    assert result.returncode == 1
    assert "row 0.tasks.sts_sample.all: recorded 42.52, now 42.21" in result.stdout
    assert "demo-untuned: does not hold: 1 of " in result.stderr
