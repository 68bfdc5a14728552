"""Tables of finished runs in Markdown files."""

import pytest

from configs import demo
from eval import sts as program
from eval import tables
from jaxwhiten import report
from jaxwhiten.errors import InputError
from tests.tiny import write_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    config = demo.get_config()
    changes = {"model": str(write_model(folder / "tiny-model")), "whitening": "none,target", "ks": "0"}
    config.update({**changes, "poolings": "mean,cls", "bootstrap": 0, "out": str(folder / "run")})
    program.main(config)
    return folder / "run"


def test_a_place_is_filled_and_the_rest_is_left_alone(run, tmp_path):
    page = tmp_path / "page.md"
    place = f"<!-- table {run} sts_table pooling=cls whitening=none,target -->\n"
    page.write_text(f"# Before\n\n{place}old\n<!-- end -->\n\nAfter.\n")
    assert tables.fill(page) == []
    text = page.read_text()
    whole = report.Run.load(run)
    whole.rows[:] = [row for row in whole.rows if row.pooling == "cls"]
    assert text == f"# Before\n\n{place}\n{report.sts_table(whole).markdown()}\n\n<!-- end -->\n\nAfter.\n"
    assert tables.fill(page) == []
    assert page.read_text() == text
    page.write_text(f"<!-- table {run} sts_table plain -->\n<!-- end -->\n")
    tables.fill(page)
    assert page.read_text().splitlines()[2].startswith("| pooling |")
    assert "Spearman" not in page.read_text()


def test_a_run_that_is_not_there_leaves_its_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- table runs/nothing sts_table -->\nold\n<!-- end -->\n")
    assert tables.fill(page) == ["runs/nothing"]
    assert "old" in page.read_text()


def test_mistakes_are_named(run, tmp_path):
    page = tmp_path / "page.md"
    mistakes = {f"{run} sts_tabel": "sts_table", "x": "names no run", f"{run} sts_table cls": "KEY=VALUE"}
    for words, said in mistakes.items():
        page.write_text(f"<!-- table {words} -->\n<!-- end -->\n")
        with pytest.raises(InputError, match=said):
            tables.fill(page)
