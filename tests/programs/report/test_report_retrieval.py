"""Tables and plots of a retrieval run."""

import pytest

from eval.report import remove_views
from eval.report import retrieval as views
from eval.runs import FORMAT, Record, Run

QUALITY = ("mrr_at_10", "recall_at_1", "recall_at_10", "recall_at_100", "ndcg_at_10")


def row(**changes):
    fields = {
        "model": "m",
        "pooling": "mean",
        "whitening": "target",
        "transductive": True,
        "n_fit": 1200,
        "k": 128,
        "beta": 1.0,
        "gamma": 1.0,
        "backend": "jax",
        "options": {},
        "index_recall_at_10": 1.0,
        "time_ms": 0.5,
        "time_with_whitening_ms": 0.6,
        "queries_per_second": 2000.0,
        "single_p50_ms": 1.0,
        "single_p99_ms": 2.0,
        "single_text_p50_ms": 10.0,
        "single_text_p99_ms": 20.0,
        "memory_gib": 0.25,
        "index_bytes": 5_000_000,
        "build_seconds": 1.5,
        "peak_rss_gb": 2.5,
        **dict.fromkeys(QUALITY, 0.5),
        **dict.fromkeys(("further", "mrr_interval", "versus_raw", "versus_words", "reranked")),
    }
    return Record(fields, **changes)


@pytest.fixture
def run():
    raw = row(whitening="none", transductive=False, k=384, beta=0.0, gamma=0.0, mrr_at_10=0.25, backend="faiss-flat")
    counts = {"rows": 300, "malformed_rows": 2, "queries_without_gold": 50}
    words = ("quality", "time", "time_with_whitening", "index_recall", "single", "memory", "target")
    header = Record(
        format=FORMAT,
        program="eval.retrieval",
        command="python -m eval.retrieval",
        commit="abc",
        level=0.95,
        resamples=0,
        published=[],
        examples=[],
        title="Retrieval on x: m",
        model="m",
        date="today",
        fingerprint="f",
        dimension=384,
        dtype="float32",
        seed=0,
        arguments=Record(),
        seconds=12.0,
        encoding=Record(seconds=3.0, sentences=1200, nli_rows=0, note=""),
        dataset=Record(name="x", documents=1000, queries=200, counts=counts, conflicts=["document 7: 'a' and 'b'"]),
        protocol={"max_length": 64, **dict.fromkeys(words, "so")},
        warnings=["nlist lowered"],
        machine=Record(cpu="x", cores=2, devices="1 CPU", peak_gb=2.5),
        versions=Record(jax="0"),
    )
    return Run(header, [raw, row()])


def test_everything_is_written_and_removed_again(run, tmp_path):
    run = run.with_header(
        examples=[
            Record(query="q?", whitening=whitening, k=8, hits=[Record(id=3, score=0.5, text=text)])
            for whitening, text in (("none", "long " * 50), ("target", None))
        ]
    )
    files = views.VIEWS.write(run, tmp_path)
    assert [file.name for file in files] == ["results.md", *views.PLOTS]
    text = files[0].read_text()
    assert "2 malformed rows left out" in text
    assert "document 7: 'a' and 'b'" in text
    assert "whitened (target), k=8" in text
    assert "…" in text
    assert "Table: " in views.VIEWS.text(run, files)
    remove_views(tmp_path)
    assert not list(tmp_path.iterdir())
