"""Tables and plots of a retrieval run."""

import pytest

from jaxwhiten.report import Run
from jaxwhiten.report import retrieval as views


def row(**changes):
    found = {
        "pooling": "mean",
        "whitening": "target",
        "transductive": True,
        "k": 128,
        "beta": 1.0,
        "gamma": 1.0,
        "backend": "jax",
        "index_recall_at_10": 1.0,
        "time_ms": 0.5,
        "time_with_whitening_ms": 0.6,
        "queries_per_second": 2000.0,
        "single_ms": {"p50": 1.0, "p99": 2.0},
        "single_text_ms": {"p50": 10.0, "p99": 20.0},
        "memory_gib": 0.25,
        "index_bytes": 5_000_000,
        "build_seconds": 1.5,
        "peak_rss_gb": 2.5,
        **{name: 0.5 for name in ("mrr_at_10", "recall_at_1", "recall_at_10", "recall_at_100", "ndcg_at_10")},
    }
    return {**found, **changes}


@pytest.fixture
def run():
    raw = row(whitening="none", transductive=False, k=384, beta=0.0, gamma=0.0, mrr_at_10=0.25, backend="faiss-flat")
    header = {
        "title": "Retrieval on x: m",
        "program": "eval.retrieval",
        "model": "m",
        "date": "today",
        "seconds": 12.0,
        "encoding": {"seconds": 3.0},
        "dataset": {
            "name": "x",
            "documents": 1000,
            "queries": 200,
            "counts": {"rows": 300, "malformed_rows": 2, "queries_without_gold": 50},
            "conflicts": ["document 7: 'a' and 'b'"],
        },
        "protocol": dict.fromkeys(
            ("max_length", "target", "index_recall", "time", "time_with_whitening", "single", "memory"), "so"
        ),
        "warnings": ["nlist lowered"],
        "machine": {"cores": 2, "devices": 1, "device_kind": "cpu", "peak_rss_gb": 2.5},
        "versions": {"jax": "0"},
    }
    return Run(header, [raw, row()])


def test_the_best_value_is_marked_and_notes_are_told(run):
    table = views.quality_table(run)
    text = table.markdown()
    assert "**0.5000**" in text
    assert "**0.2500**" not in text
    assert "1,000 documents, 200 queries, of which 150 have gold" in text
    assert "target †" in text
    assert "† transductive" in text
    assert "nlist lowered" in text


def test_intervals_and_differences_stand_beside_the_mrr(run):
    assert "vs. raw" not in views.quality_table(run).columns
    for number, r in enumerate(run.rows):
        r["mrr_interval"] = {"low": 0.4, "high": 0.55}
        if number:
            r["versus_raw"] = {"value": -0.1, "low": -0.2, "high": -0.05}
    table = views.quality_table(run)
    place = table.columns.index("MRR@10")
    assert table.columns[place + 1 : place + 3] == ["its interval", "vs. raw"]
    assert [r[place + 1 : place + 3] for r in table.rows] == [["0.4000–0.5500", "–"], ["0.4000–0.5500", "-0.1000∗"]]
    assert "**0.5000**" in table.markdown()


def test_knobs_are_shown_only_where_there_are_several(run):
    assert "γ" not in views.quality_table(run).columns
    run.rows.append(row(gamma=0.5))
    assert "γ" in views.cost_table(run).columns
    assert views.cost_table(run).rows[-1][4] == "0.5"
    assert views.cost_table(run).rows[0][4] == ""


def test_everything_is_written_and_removed_again(run, tmp_path):
    run.header["examples"] = [
        {"query": "q?", "whitening": w, "k": 8, "hits": [{"score": 0.5, "id": 3, "text": t}]}
        for w, t in (("none", "long " * 50), ("target", None))
    ]
    files = views.write_retrieval(run, tmp_path)
    assert [file.name for file in files] == ["results.md", "report.html", *views.PLOTS]
    text = files[0].read_text()
    assert "2 malformed rows left out" in text
    assert "document 7: 'a' and 'b'" in text
    assert "whitened (target), k=8" in text
    assert "…" in text
    page = files[1].read_text()
    assert page.count("data:image/png;base64") == len(views.PLOTS)
    assert "whitened (target), k=8" in page
    assert "Table: " in views.as_text(run, files)
    views.remove_views(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_gold_there_are_numbers_missing_and_no_plots(run, tmp_path):
    for one in run.rows:
        for name in ("mrr_at_10", "recall_at_1", "recall_at_10", "recall_at_100", "ndcg_at_10"):
            one[name] = float("nan")
    assert views.write_retrieval(run, tmp_path) == [tmp_path / "results.md", tmp_path / "report.html"]
    assert "–" in (tmp_path / "results.md").read_text()


def test_nothing_published_no_table(run):
    assert views.published_table(run) is None
