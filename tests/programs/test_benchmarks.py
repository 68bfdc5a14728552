"""Benchmarks: the reader of real sentences, the order of contestants, and the tables of what was written."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks import codes, harness, search_real, wikipedia
from eval import runs, tables
from eval.runs import Run


@pytest.fixture(autouse=True)
def _without_rest(monkeypatch):
    """Nothing is measured here: no pause before a run."""
    monkeypatch.setattr(harness, "PAUSE", 0.0)


@pytest.fixture
def corpus(tmp_path):
    """Text files of 300 paragraphs; every second one is read, and every tenth has one sentence only."""
    lines = [
        f"The first sentence number {i} is here. Its second sentence says more of {i}. A third ends it.\n"
        if i % 10
        else f"Only one sentence of paragraph {i} is here.\n"
        for i in range(300)
    ]
    folder = tmp_path / "enwiki"
    folder.mkdir()
    for part in range(2):
        with gzip.open(folder / f"enwiki-0{part}.txt.gz", "wt") as file:
            file.writelines(lines[part * 150 : part * 150 + 150])
    return folder


def test_a_query_is_the_sentence_after_its_document(corpus):
    passages = wikipedia.passages(100, corpus)
    numbers = [i for i in range(0, 300, 2) if i % 10][:100]
    assert passages.documents == [f"The first sentence number {i} is here." for i in numbers]
    assert passages.queries == [f"Its second sentence says more of {numbers[source]}." for source in passages.sources]
    assert passages.sources.tolist() == [37]
    assert passages.provenance["text"] == "enwiki, enwiki-00.txt.gz to enwiki-01.txt.gz"


def test_every_contestant_is_timed_in_every_place():
    order = []
    runs = {name: lambda name=name: order.append(name) for name in "abc"}
    seconds = harness.interleave(runs, rounds=3, warmup=0)
    assert order == [*"abc", *"bca", *"cab"]
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3, "c": 3}


@pytest.mark.slow
def test_lists_are_compared_at_the_recall_asked_for():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 160), np.float32) * np.arange(1, 161, dtype=np.float32) ** -0.5 + 0.2
    sources = np.arange(0, 2000, 40)
    q = x[sources] + 0.05 * rng.standard_normal((len(sources), 160), np.float32)
    rows = search_real.approximate(x, q, sources, 0.9, 2, 32)
    assert list(rows) == ["raw, 160", "centred, 160", "PCA, 128", "whitened, 160", "whitened, 128"]
    for row in rows.values():
        assert row["recall"] >= 0.9
        assert row["recall"] == row["recall_by_effort"][row["effort"]]
        assert all(recall < 0.9 for effort, recall in row["recall_by_effort"].items() if effort < row["effort"])
        assert row["own_document_found"] == 1.0
    assert rows["raw, 160"]["mean_cosine"] > 0.3 > 0.01 > rows["centred, 160"]["mean_cosine"]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A folder in which a benchmark has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(harness, "RESULTS", Path("runs/benchmarks"))
    part = {"median": 2.0, "low": 1.5, "high": 2.5}
    beside = {"one": part, "other": {**part, "median": 3.0}}
    harness.save("cold_start", [{"contestant": "jaxwhiten, cold", "seconds": [1.0], "beside": beside}], device="cpu")
    return tmp_path


def test_what_a_benchmark_wrote_is_kept_and_shown(written):
    page = written / "page.md"
    page.write_text("<!-- table benchmarks/cold_start speed_table plain beside=other -->\nold\n<!-- end -->\n")
    assert tables.fill(page) == []
    assert page.read_text().splitlines()[4] == (
        "| process start to ten vectors, nothing compiled before | other | 3.00 (1.50 to 2.50) |"
    )
    text = page.read_text()
    (written / "runs/benchmarks/cold_start.jsonl").unlink()
    assert tables.fill(page) == []
    assert page.read_text() == text
    header = Run.load(written / "docs/runs/benchmarks/cold_start.jsonl").header
    assert header.program == "benchmarks.cold_start"
    assert header.machine.cores >= 1
    assert header.commit == runs.git("rev-parse", "HEAD")


def test_a_command_can_be_typed_on_another_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path))
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    words = [
        "--rounds",
        "2",
        "--cache",
        "/home/me",
        "--model=/home/it",
        f"--file={tmp_path}/pairs.tsv",
        "a b",
        "/x/y.npy",
    ]
    monkeypatch.setattr(runs.sys, "orig_argv", ["/usr/bin/python", "-m", "benchmarks.encode", *words])
    arguments = "--rounds 2 --file=$JAXWHITEN_DATA_DIR/pairs.tsv 'a b' y.npy"
    assert runs.command("benchmarks.encode", {}) == f"python -m benchmarks.encode {arguments}"
    assert list(runs.checksums(runs.sys.orig_argv)) == ["pairs.tsv"]
    assert list(runs.checksums(["-o", f"{tmp_path}/pairs.tsv"])) == []
    assert runs.command("eval.sts", {"ks": "0,8", "out": ""}) == "python -m eval.sts --config.ks=0,8"
    assert runs.header("benchmarks.encode", {}, command="in parts", complete=True).command == "in parts"


def test_a_code_is_timed_in_a_process_of_its_own():
    times = codes.measured(Path(codes.__file__).parents[1], 600)
    assert list(times) == ["fit_cpu_ms", "coding_cpu_ms", "search_p50_ms"]
    assert min(times.values()) > 0
