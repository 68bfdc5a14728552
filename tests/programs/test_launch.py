"""How programs start: overrides, typos, exit codes."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field

import pytest

from configs import launch
from configs.settings import Config
from jaxwhiten.errors import DataError


@dataclass(slots=True)
class Counting(Config):
    model: str = "plain"
    optimizer: dict[str, float] = field(default_factory=lambda: {"rate": 0.1})
    steps: int = 3
    words: tuple[str, ...] = ("a",)
    geometry: bool = False
    dropout: float | None = None


def main(config):
    if config.steps == 0:
        raise DataError("rows.tsv, line 7: not a number")
    print(config.model, config.optimizer["rate"], config.steps, *config.words, config.geometry, config.dropout)


@pytest.fixture
def start(monkeypatch, capsys):
    """Runs the program; its exit code, and what it printed to both streams."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # a program replaces it

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["program", *arguments])
        code = 0
        try:
            launch.run(main, Counting)
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


def test_defaults_and_overrides(start):
    assert start()[:2] == (0, "plain 0.1 3 a False None\n")
    changed = ("--config.optimizer.rate=0.5", "--config.words=('b','c')", "--config.geometry=1", "--dropout", "0.2")
    assert start(*changed)[:2] == (0, "plain 0.5 3 b c True 0.2\n")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--config.step=1", "Did you mean 'steps'"),
        ("--config.steps=few", "whole number"),
        ("--config=configs/stss.py", "'configs/stss.py'"),
        ("--config.steps=0", "rows.tsv, line 7"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(start, argument, message):
    code, _, error = start(argument)
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith("error: ")
    assert message in error
