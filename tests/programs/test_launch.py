"""How programs start: overrides, typos, exit codes."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

CONFIG = """
from __future__ import annotations
from dataclasses import dataclass
from configs.settings import Config, setting
@dataclass(slots=True)
class Counting(Config):
    model: str
    optimizer: dict[str, float] = setting({"rate": 0.1}, "")
    steps: int = 3
    words: tuple[str, ...] = ("a",)
    data_dir: str = ""
    eigenvalue_floor: float = setting(0.5, "floor for eigenvalues, as a fraction of the largest")
    geometry: bool = False
    dropout: float | None = None
def get_config(variant="plain"):
    return {} if variant == "dict" else Counting(variant)
"""
PROGRAM = '''"""Counts steps.

More of it.
"""
import sys
import warnings
from configs import launch
from configs.settings import Config
from jaxwhiten.errors import DataError
def main(config):
    if config.steps == 0:
        raise DataError("rows.tsv, line 7: not a number")
    if config.steps < 0:
        raise KeyboardInterrupt
    if config.steps == 99:
        warnings.warn("few\\nrows")
        raise DataError("set `data_dir`, steps=5 or k=2")
    print(config.model, config.optimizer["rate"], config.steps, *(config.words if config.steps == 7 else ()))
    if config.geometry:
        print(config.dropout)
launch.run(main, sys.argv.pop(1), Config)
'''


@pytest.fixture
def start(tmp_path):
    config, program = tmp_path / "plain.py", tmp_path / "program.py"
    config.write_text(CONFIG)
    program.write_text(PROGRAM)

    def run(*arguments, default=config):
        command = [sys.executable, str(program), str(default), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})

    run.config = config
    return run


def test_defaults_overrides_and_variants(start):
    assert start().stdout == "plain 0.1 3\n"
    assert start("--config.optimizer.rate=0.5", "--config.steps=9").stdout == "plain 0.5 9\n"
    assert start(f"--config={start.config}:other").stdout == "other 0.1 3\n"
    assert start("--config.words=('b','c')", "--config.steps=7").stdout == "plain 0.1 7 b c\n"  # read once
    assert start("--config", f"{start.config}:third").stdout == "third 0.1 3\n"
    assert start("--config.geometry=True", "--config.dropout", "0.2").stdout == "plain 0.1 3\n0.2\n"
    assert start("--config.geometry=1", "--config.dropout=none").stdout == "plain 0.1 3\nNone\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.step=1"], "Unknown config key 'step'. Did you mean 'steps'"),
        (["--config.steps=few"], "expected a whole number, got 'few'"),
        (["--config.optimizer=adam"], "is a section"),
        (["--distributed", "host:1,0,2"], "after an equals sign: --distributed="),
        (["--config=configs/stss.py"], "'configs/stss.py'"),
        (["--config.steps=0"], "rows.tsv, line 7"),
        (["--halp"], "--help lists the keys"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(start, arguments, message):
    result = start(*(argument.format(config=start.config) for argument in arguments))
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
