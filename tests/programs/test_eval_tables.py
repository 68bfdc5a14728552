"""Tables of finished runs in Markdown files."""

import pytest

from configs import sample
from eval import runs, tables
from eval import sts as program
from eval.aggregates import scores_of
from eval.report import sts as views
from eval.runs import Record, Run
from tests.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a finished run, runs/tiny."""
    folder = tmp_path_factory.mktemp("tables")
    config = sample.get_config()
    config.aggregate = "wmean"
    changes = {"model": str(write_model(folder / "tiny-model")), "whitening": "none,target", "ks": "0"}
    config.update({**changes, "poolings": "mean,cls", "bootstrap": 50, "data_dir": str(folder)})
    config.out = str(folder / "runs" / "tiny")
    program.main(config)
    return folder


@pytest.fixture
def page(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder / "page.md"


def test_a_place_is_filled_and_the_rest_is_left_alone(page):
    comment = "<!-- table tiny sts_table pooling=cls whitening=none,target -->\n"
    page.write_text(f"# Before\n\n{comment}old\n<!-- end -->\n\nAfter.\n")
    assert tables.fill(page) == []
    text = page.read_text()
    whole = Run.load("runs/tiny")
    whole.rows[:] = [row for row in whole.rows if row.pooling == "cls"]
    assert text == f"# Before\n\n{comment}\n{views.sts_table(whole).markdown()}\n\n<!-- end -->\n\nAfter.\n"
    assert tables.fill(page) == []
    assert page.read_text() == text


def test_a_run_that_is_not_there_leaves_its_table(page):
    page.write_text("<!-- table nothing sts_table -->\nold\n<!-- end -->\n")
    assert tables.fill(page) == ["nothing"]
    assert "old" in page.read_text()


def test_runs_of_several_seeds_are_one_table_of_means(page):
    whole = Run.load("runs/tiny")
    moved = []
    for row in whole.rows:
        (task, scores), interval = *row.tasks.items(), row.average_interval
        interval = interval.but(low=interval.low + 2, high=interval.high + 2)
        tasks = Record({task: scores.but(wmean=scores.wmean + 2)})
        moved.append(row.but(tasks=tasks, average_interval=interval))
    whole.save("runs/seeds/tiny-0-sts")
    Run(whole.header, moved).save("runs/seeds/tiny-1-sts")
    means = runs.find("seeds/tiny-*-sts")
    for row, mean in zip(whole.rows, means.rows, strict=True):
        assert mean.model == "seeds/tiny, 2 seeds"
        assert scores_of(mean, "wmean")["average"] == pytest.approx(scores_of(row, "wmean")["average"] + 1)
        assert mean.average_interval.low == row.average_interval.low
        assert mean.average_interval.high == row.average_interval.high + 2
    page.write_text("<!-- table seeds/tiny-*-sts average_table plain pooling=cls -->\n<!-- end -->\n")
    assert tables.fill(page) == []
    assert page.read_text().splitlines()[4].startswith("| tiny, 2 seeds | cls | raw |")
    page.write_text("<!-- table seeds/none-*-sts average_table -->\n<!-- end -->\n")
    assert tables.fill(page) == ["seeds/none-*-sts"]
