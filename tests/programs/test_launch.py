"""How programs start: overrides, typos, exit codes."""

import sys
import warnings

import pytest

from configs import launch
from configs.settings import Config
from jaxwhiten.errors import DataError

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


def main(config):
    if config.steps == 0:
        raise DataError("rows.tsv, line 7: not a number")
    print(config.model, config.optimizer["rate"], config.steps, *(config.words if config.steps == 7 else ()))
    if config.geometry:
        print(config.dropout)


@pytest.fixture
def start(tmp_path, monkeypatch, capsys):
    config = tmp_path / "plain.py"
    config.write_text(CONFIG)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # a program replaces it

    def run(*arguments):
        """The exit code of a program, and what it printed to both streams."""
        monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
        code = 0
        try:
            launch.run(main, str(config), Config)
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    run.config = config
    return run


def test_defaults_overrides_and_variants(start):
    expected = {
        (): "plain 0.1 3\n",
        ("--config.optimizer.rate=0.5", "--config.steps=9"): "plain 0.5 9\n",
        (f"--config={start.config}:other",): "other 0.1 3\n",
        ("--config.words=('b','c')", "--config.steps=7"): "plain 0.1 7 b c\n",  # read once
        ("--config", f"{start.config}:third"): "third 0.1 3\n",
        ("--config.geometry=True", "--config.dropout", "0.2"): "plain 0.1 3\n0.2\n",
        ("--config.geometry=1", "--config.dropout=none"): "plain 0.1 3\nNone\n",
    }
    assert {arguments: start(*arguments)[:2] for arguments in expected} == {
        arguments: (0, text) for arguments, text in expected.items()
    }


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
    code, _, error = start(*arguments)
    assert code == 2
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
