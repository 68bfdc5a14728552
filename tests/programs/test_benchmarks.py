"""Benchmarks: what the driver keeps and shows, and the command that a run names."""

from dataclasses import dataclass

import pytest

from benchmarks import harness
from configs.settings import Config
from eval import runs, tables
from eval.runs import Run


@dataclass(slots=True)
class Settings(Config):
    rounds: int = 2


def test_what_a_benchmark_yields_is_kept_and_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "runs" / "benchmarks")
    part = {"median": 2.0, "low": 1.5, "high": 2.5}
    row = {"what": "text to vector", "contestant": "jaxwhiten", "p50_ms": 1.0, "p99_ms": 2.0, "times_the_fastest": part}

    def measure(config):
        yield harness.Facts(rounds=config.rounds)
        yield row
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        harness.driven_by_rows("latency", measure)(Settings())
    stopped = Run.load(harness.RESULTS / "latency.jsonl")
    assert (stopped.rows, stopped.header.complete, stopped.header.rounds) == ([row], False, 2)
    harness.driven_by_rows("latency", lambda config: iter([row]))(Settings())
    assert "p50_ms 1, p99_ms 2, times_the_fastest 2.00 (1.50 to 2.50)" in capsys.readouterr().out
    page = tmp_path / "page.md"
    page.write_text("<!-- table benchmarks/latency latency_table plain columns=^(what|times) -->\nold\n<!-- end -->\n")
    assert tables.fill(page) == []
    assert page.read_text().splitlines()[4] == "| text to vector | 2.00 (1.50 to 2.50) |"
    header = Run.load("docs/runs/benchmarks/latency.jsonl").header
    assert (header.program, header.commit) == ("benchmarks.latency", runs.git("rev-parse", "HEAD"))


def test_a_command_can_be_typed_on_another_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path))
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    words = (
        f"/usr/bin/python -m benchmarks.encode --rounds 2 --cache /home/me --model=/home/it /x/y.npy --file={tmp_path}"
    )
    monkeypatch.setattr(runs.sys, "orig_argv", [*f"{words}/pairs.tsv".split(), "a b"])
    arguments = "--rounds 2 y.npy --file=$JAXWHITEN_DATA_DIR/pairs.tsv 'a b'"
    assert runs.command("benchmarks.encode", {}) == f"python -m benchmarks.encode {arguments}"
    assert list(runs.checksums(runs.sys.orig_argv)) == ["pairs.tsv"]
    assert runs.command("eval.sts", {"ks": "0,8", "out": ""}) == "python -m eval.sts --config.ks=0,8"
