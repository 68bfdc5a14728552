"""`jaxwhiten.report`: files, tables and plots of a made-up run."""

import json

import numpy as np
import pytest

from jaxwhiten import report
from jaxwhiten.errors import FormatError


def scores(value, **more):
    return {"all": value, "mean": value - 1, "wmean": value - 2, "subsets": {"x": value}, "n_fit": 7, **more}


def row(pooling, whitening, k, values, beta=1.0, gamma=1.0, **more):
    return {
        "model": "some/model",
        "pooling": pooling,
        "whitening": whitening,
        "k": k,
        "beta": 0.0 if whitening == "none" else beta,
        "gamma": 0.0 if whitening == "none" else gamma,
        "n_fit": 7,
        "transductive": whitening == "target",
        "seconds": 0.1,
        "tasks": {task: scores(value, **more) for task, value in zip(("STS12", "STS-B"), values, strict=True)},
    }


@pytest.fixture
def run():
    rng = np.random.default_rng(0)
    header = {
        "program": "eval.sts",
        "title": "STS scores: some/model",
        "date": "2026-01-01T00:00:00+00:00",
        "model": "some/model",
        "dtype": "float32",
        "tasks": ["STS12", "STS-B"],
        "aggregate": "wmean",
        "sample": False,
        "seconds": 12.0,
        "protocol": {"max_length": 64, "whitening": {"target": "fitted on TARGET", "nli": "fitted on NLI"}},
        "encoding": {"sentences": 1234, "nli_rows": 5, "seconds": 10.0},
        "machine": {"cores": 2, "devices": 1, "device_kind": "cpu", "peak_rss_gb": 1.25},
        "versions": {"jax": "0.10.2"},
        "warnings": ["STS12, target: few rows"],
        "published": [],
        "figures": {
            "spectrum": "NLI sentences",
            "similarity": {
                "pooling": "mean",
                "whitening": "target",
                "k": 8,
                "task": "STS-B",
                "gold": [5.0, 3.0, 0.0],
                "sentences": ["A man is walking.", "A very long sentence " * 5, "Émile | rit."],
            },
        },
    }
    rows = [
        row("mean", "none", 8, (70.0, 80.0)),
        row("mean", "target", 8, (75.0, 79.0)),
        row("mean", "target", 4, (74.0, 78.0)),
        row("cls", "none", 8, (60.0, 50.0)),
        row("cls", "target", 8, (61.0, float("nan"))),
        row("cls", "target", 4, (61.5, 51.0)),
    ]
    figures = {
        "spectrum/mean": np.geomspace(10, 0.1, 8),
        "spectrum/cls": np.array([5.0, 2, 1, 0, 0, 0, 0, -1e-12]),
        "similarity/before": rng.uniform(0, 1, (3, 3)).astype(np.float32),
        "similarity/after": rng.uniform(-1, 1, (3, 3)).astype(np.float32),
    }
    return report.Run(header, rows, figures)


def test_a_run_survives_its_files(run, tmp_path):
    run.save(tmp_path)
    back = report.Run.load(tmp_path)
    assert back.header == run.header
    assert [r["tasks"]["STS12"] for r in back.rows] == [r["tasks"]["STS12"] for r in run.rows]
    assert back.rows[4]["tasks"]["STS-B"]["all"] is None
    for name, array in run.figures.items():
        np.testing.assert_array_equal(back.figures[name], array)
    assert isinstance(json.loads((tmp_path / "results.json").read_text()), list)


def test_the_views_are_those_of_the_files(run, tmp_path):
    run.save(tmp_path)
    back = report.Run.load(tmp_path)
    assert report.sts_table(back) == report.sts_table(run)


def test_damaged_files_are_named(run, tmp_path):
    with pytest.raises(FormatError, match=r"run\.json"):
        report.Run.load(tmp_path)
    run.save(tmp_path)
    (tmp_path / "results.json").write_text("[{")
    with pytest.raises(FormatError, match=r"results\.json"):
        report.Run.load(tmp_path)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(FormatError, match="not a list"):
        report.Run.load(tmp_path)


def test_the_table(run):
    table = report.sts_table(run)
    assert table.columns == ["pooling", "whitening", "k", "STS12", "STS-B", "average"]
    assert table.rows[0] == ["mean", "none", "8", "68.00", "78.00", "73.00"]
    assert table.rows[1][:3] == ["mean", "target †", "8"]
    assert table.rows[4][3:] == ["59.00", "–", "–"]
    assert table.best == {(1, 3), (0, 4), (1, 5)}
    text = table.text()
    assert "† transductive" in text
    assert "STS12, target: few rows" in text
    assert "fitted on TARGET" in text.replace("\n", " ")
    assert "fitted on NLI" not in text
    assert "(wmean)" in text
    assert "64 tokens" in text.replace("\n", " ")
    widths = {len(line) for line in text.splitlines() if line.startswith(("mean", "cls"))}
    assert len(widths) == 1


def test_another_aggregate_is_another_column_of_numbers(run):
    run.header["aggregate"] = "all"
    assert report.sts_table(run).rows[0][3:] == ["70.00", "80.00", "75.00"]


def test_knobs_are_columns_when_they_differ(run):
    run.rows.append(row("cls", "target", 8, (62.0, 52.0), beta=1.0, gamma=0.5))
    table = report.sts_table(run)
    assert table.columns[:5] == ["pooling", "whitening", "k", "β", "γ"]
    assert table.rows[0][3:5] == ["", ""]
    assert table.rows[-1][3:5] == ["1", "0.5"]


def test_a_sample_is_called_a_sample_everywhere(run, tmp_path):
    run.header["sample"] = True
    text = report.sts_table(run).text()
    assert text.startswith("Sample, not a benchmark.")
    assert text.count("not a benchmark") == 2
    assert "not a benchmark" in report.write_sts(run, tmp_path)[0].read_text()


def test_markdown(run):
    text = report.sts_table(run).markdown()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(run.rows)
    assert lines[1] == "| --- | --- | ---: | ---: | ---: | ---: |"
    assert "**73.00**" in text
    assert len({line.count("|") for line in lines}) == 1


def test_published_numbers_stand_apart(run):
    assert report.published_table(run) is None
    run.header["published"] = [
        {
            "setting": "mean, none, k=8",
            "source": "Paper",
            "citation": "Someone 2020",
            "aggregate": "all",
            "scores": {"STS12": 69.5},
            "difference": {"STS12": 0.5},
        }
    ]
    table = report.published_table(run)
    assert table.rows[0] == ["mean, none, k=8 (all)", "Paper", "published", "69.50", "–"]
    assert table.rows[1] == ["", "", "difference", "+0.50", "–"]
    assert table.notes == ["Paper: Someone 2020"]
    ours = {cell for r in report.sts_table(run).rows for cell in r}
    assert "69.50" not in ours


def test_intervals(run):
    assert report.interval_table(run) is None
    run.header["bootstrap"] = {"resamples": 1000, "level": 0.95, "seed": 0}
    for r in run.rows:
        for task in r["tasks"].values():
            task |= {"low": 50.0, "high": 60.25}
    table = report.interval_table(run)
    assert table.rows[1] == ["mean, target †, k=8", "50.00–60.25", "50.00–60.25"]
    assert "1,000 resamples" in table.caption


def test_every_view_is_written(run, tmp_path):
    files = report.write_sts(run, tmp_path)
    plots = ["score_by_k.png", "spectrum.png", "similarity.png"]
    assert [file.name for file in files] == ["results.md", "report.html", *plots]
    for file in files[2:]:
        assert file.read_bytes().startswith(b"\x89PNG")
        assert f"({file.name})" in files[0].read_text()
    page = files[1].read_text()
    assert page.count("data:image/png;base64") == 3
    assert page.count(report.sts_table(run).columns[-1]) >= 3  # one table an aggregate
    assert page.count("STS12, target: few rows") == 1
    assert "<dt>whitening.target</dt><dd>fitted on TARGET</dd>" in page
    report.remove_views(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_whitening_there_is_a_table_and_no_plot(run, tmp_path):
    run.rows = [r for r in run.rows if r["whitening"] == "none"]
    run.figures = {}
    assert [file.name for file in report.write_sts(run, tmp_path)] == ["results.md", "report.html"]
