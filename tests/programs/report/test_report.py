"""`eval.report`: files, tables and plots of a made-up run."""

import json

import numpy as np
import pytest

from eval import report
from eval.report import sts as views
from eval.runs import FORMAT, Record, Run
from jaxwhiten.errors import FormatError


def scores(value):
    absent = dict.fromkeys(("low", "high", "ranking"))
    return Record({"all": value, "mean": value - 1, "wmean": value - 2, "subsets": {"x": value}, "n_fit": 7, **absent})


def row(pooling, whitening, k, values, beta=1.0, gamma=1.0):
    return Record(
        model="some/model",
        pooling=pooling,
        whitening=whitening,
        k=k,
        beta=0.0 if whitening == "none" else beta,
        gamma=0.0 if whitening == "none" else gamma,
        n_fit=7,
        transductive=whitening == "target",
        seconds=0.1,
        fit_seconds=0.05,
        bytes=1000,
        tasks=Record({task: scores(value) for task, value in zip(("STS12", "STS-B"), values, strict=True)}),
        **dict.fromkeys(("further", "geometry", "average_interval", "versus_raw", "versus_words")),
    )


@pytest.fixture
def run():
    rng = np.random.default_rng(0)
    header = Record(
        format=FORMAT,
        program="eval.sts",
        command="python -m eval.sts",
        commit="abc",
        level=0.95,
        resamples=0,
        published=[],
        title="STS scores: some/model",
        date="2026-01-01T00:00:00+00:00",
        model="some/model",
        fingerprint="f",
        dimension=8,
        dtype="float32",
        seed=0,
        arguments={},
        tasks=["STS12", "STS-B"],
        aggregate="wmean",
        sample=False,
        seconds=12.0,
        protocol={
            "max_length": 64,
            "empty_sentence": ".",
            "pairs": "so",
            "correlation": "so",
            "similarity": "cosine",
            "whitening": {"target": "fitted on TARGET", "nli": "fitted on NLI"},
            "methods": "so",
        },
        encoding=Record(seconds=10.0, sentences=1234, nli_rows=5, note=""),
        machine=Record(cpu="x", cores=2, devices="1 CPU", peak_gb=1.25),
        versions=Record(jax="0.10.2"),
        warnings=["STS12, target: few rows"],
        spectrum="NLI sentences",
        similarity=Record(
            pooling="mean",
            whitening="target",
            k=8,
            task="STS-B",
            gold=[5.0, 3.0, 0.0],
            sentences=["A man is walking.", "A very long sentence " * 5, "Émile | rit."],
        ),
    )
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
    return Run(header, rows, figures)


def test_a_run_survives_its_files(run, tmp_path):
    run.save(tmp_path)
    back = Run.load(tmp_path)
    assert back.header == run.header
    assert [r.tasks["STS12"] for r in back.rows] == [r.tasks["STS12"] for r in run.rows]
    assert back.rows[4].tasks["STS-B"].all is None
    assert back.rows[1].tasks["STS-B"].subsets.x == 79.0
    for name, array in run.figures.items():
        np.testing.assert_array_equal(back.figures[name], array)
    for line in (tmp_path / "run.jsonl").read_text().splitlines():
        json.dumps(json.loads(line), allow_nan=False)


def test_what_is_no_run_is_named(run, tmp_path):
    with pytest.raises(FormatError, match=r"run\.jsonl"):
        Run.load(tmp_path)
    run.save(tmp_path)
    file = tmp_path / "run.jsonl"
    for text in ("[{", "[]\n", "", '{"format": 2}\n'):
        file.write_text(text)
        with pytest.raises(FormatError):
            Run.load(tmp_path)
    with pytest.raises(AttributeError, match="no tsaks"):
        _ = run.rows[0].tsaks


def test_every_view_is_written(run, tmp_path):
    files = views.VIEWS.write(run, tmp_path)
    plots = ["score_by_k.png", "spectrum.png", "similarity.png"]
    assert [file.name for file in files] == ["results.md", *plots]
    for file in files[1:]:
        assert file.read_bytes().startswith(b"\x89PNG")
        assert f"({file.name})" in files[0].read_text()
    assert files[0].read_text().count("STS12, target: few rows") == 1
    for name in ("mine.png", "run.jsonl"):
        (tmp_path / name).write_text("")
    report.remove_views(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.png", "run.jsonl"}


def test_published_averages_have_a_column_of_their_own():
    """By hand from the table of Su et al. 2021: BERT-base raw, and whitened to 256 dimensions on the test sentences."""
    table = views.average_table(Run.load("docs/runs/miniature/raw.jsonl"))
    published = {(line[1], line[2], line[3], line[4]): line[-1] for line in table.rows}
    raw = (57.85 + 61.96 + 62.50 + 70.96 + 69.79 + 59.04 + 63.75) / 7
    whitened = (63.90 + 73.75 + 69.09 + 74.59 + 74.42 + 71.43 + 62.23) / 7
    assert published["first_last_avg", "raw", "", "256"] == f"{raw:.2f}"
    assert published["first_last_avg", "whitened", "the test sentences †", "256"] == f"{whitened:.2f}"
    assert {line[-1] for line in table.rows if line[1] in ("tfidf", "mean", "layers:0")} == {""}
