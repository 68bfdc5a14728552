"""`eval.report.training`: the page of a finished training run."""

import json

from eval import report


def test_the_page_shows_scores_course_and_recipe(tmp_path):
    rows = [{"step": 0, "dev": 50.25}, {"step": 1, "loss": 0.5}, {"step": 2, "dev": 60.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "loss.png").write_bytes(b"made up")
    path = report.write_training(
        tmp_path,
        "train.sbert: cosine",
        scores={"before": {"test": 40.0, "dev": 50.25}, "after": {"test": float("nan"), "dev": 60.5}},
        recipe={"learning_rate": 2e-5, "steps": 3, "data": {"name": "nli"}},
        facts={"hardware": "2 CPU cores", "step": 2},
    )
    page = path.read_text()
    assert path.name == "report.html"
    assert "dev 50.250 → 60.500 · checkpoint of step 2 of 3 · " in page.partition("<h2>")[0]
    assert page.partition("<h2>")[2].startswith("Result<")
    assert '<td>test</td><td class="number">40.000</td><td class="number">–</td>' in page
    assert '<td class="number">50.250</td><td class="number">60.500</td><td class="number">+10.250</td>' in page
    assert '<td class="number">2</td><td class="number">60.500</td>' in page
    assert "data:image/png;base64" in page
    assert "<dt>data.name</dt><dd>nli</dd>" in page
    assert "2 CPU cores" in page
    assert "<dt>jax</dt>" in page


def test_a_run_without_scores_or_curve_has_a_page(tmp_path):
    page = report.write_training(tmp_path, "a run", scores={"after": {}}, recipe={}, facts={"step": 6}).read_text()
    assert "<h2>Result</h2>" not in page
    assert "<h2>Course</h2>" not in page
    assert "checkpoint of step 6 · " in page
    assert "<dt>step</dt><dd>6</dd>" in page
