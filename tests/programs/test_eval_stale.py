"""Which runs are older than what they measure, and who cites them."""

import pytest

from eval import runs, stale
from eval.runs import FORMAT, Record, Run


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Runs of commits since which the whitening, a benchmark or nothing of theirs has changed."""
    monkeypatch.chdir(tmp_path)
    commits = {
        "one": ("eval.thresholds", {"commit": "old", "committed": "new"}),
        "seeds-0": ("eval.sts", {"commit": None, "committed": "old"}),
        "fresh": ("eval.sts", {"commit": "new"}),
        "benchmarks/encode": ("benchmarks.encode", {"commit": "old"}),
        "by-hand": (None, {"commit": "old"}),
        "lost": ("eval.sts", {"commit": "gone"}),
    }
    for name, (program, commit) in commits.items():
        Run(Record(format=FORMAT, program=program, **commit)).save(runs.KEPT / f"{name}.jsonl")
    changes = {"old": "jaxwhiten/whitening/moments.py\nbenchmarks/encode.py\nconfigs/sts.py", "new": "", "gone": None}

    def git(*words):
        return "3" if words[0] == "rev-list" else changes[words[2]]

    monkeypatch.setattr(runs, "git", git)
    for cached in (stale.changed, stale.commits):
        cached.cache_clear()
    yield tmp_path
    for cached in (stale.changed, stale.commits):
        cached.cache_clear()


def test_what_changed_since_a_run_and_who_cites_it(kept):
    (kept / "README.md").write_text("<!-- table {fresh,lost} sts_table + seeds-* sts_table -->\n<!-- end -->\n")
    (kept / "docs/evidence").mkdir()
    (kept / "docs/evidence/speed.md").write_text("`docs/runs/one.jsonl` has all; `encode`, and the run `other`.\n")
    *lines, last = stale.report()
    assert lines == [
        "by-hand (None, old): its program is not here; cited nowhere",
        "lost (eval.sts, gone): its commit is not here; README.md",
        "benchmarks/encode (benchmarks.encode, old): 3 commits to benchmarks.encode; docs/evidence/speed.md",
        "seeds-0 (eval.sts, old, committed): 3 commits to whitening; README.md",
        "cited nowhere: by-hand",
    ]
    assert last == "4 of 6 runs are older than what they measure; 1 are cited nowhere."


def test_rooms_are_those_that_a_program_imports():
    assert {"codes", "encoding", "datasets"} <= stale.rooms("eval.thresholds")
    assert "whitening" not in stale.rooms("eval.thresholds")
    assert "training" in stale.rooms("benchmarks.train_throughput")
    assert "training" not in stale.rooms("eval.sts")
    assert {"whitening", "metrics"} <= stale.rooms("eval.sts")


def test_a_run_is_clean_if_the_commit_has_its_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    program = tmp_path / "eval" / "first.py"
    program.parent.mkdir()
    program.touch()
    assert runs.git("init") is not None
    runs.git("add", ".")
    runs.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-m", "first")
    clean = []
    for file in (program, tmp_path / "notes.txt", program.with_name("second.py")):
        file.touch()
        clean.append(runs.source.__wrapped__()["clean"])
    assert clean == [True, True, False]
