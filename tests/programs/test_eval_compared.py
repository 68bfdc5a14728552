"""Tables over several runs, from rows whose figures are known."""

import pytest

from benchmarks import databases
from eval import compared, runs, tables
from eval.runs import Record, Run
from jaxwhiten.errors import InputError
from tests.programs.test_eval_codes import folder  # noqa: F401


def estimate(value, low, high):
    return Record(value=value, low=low, high=high)


@pytest.fixture
def run(folder):  # noqa: F811
    """A run in which unchanged vectors, and γ of 0, 0.25, 0.5 and 1, have these scores in 4 and in 8 bytes."""
    finished = Run.load(folder / "runs" / "tiny")
    raw, row = finished.rows[0], next(row for row in finished.rows if row.code == "spectrum")
    scores = {4: (0.35, 0.3, 0.4, 0.5, 0.4), 8: (0.65, 0.5, 0.5, 0.6, 0.7)}
    rows = [
        row.but(bytes=size, gamma=gamma, mrr_at_10=score)
        for size, of_size in scores.items()
        for gamma, score in zip(compared.GAMMAS, of_size, strict=True)
    ]
    return Run(finished.header.but(participation_ratio=20.0), [raw, *rows])


def test_a_gamma_loses_what_the_best_one_has_more(run):
    regrets = compared.regrets(run)
    assert regrets[None] == pytest.approx([15, 5])
    assert regrets[0.0] == pytest.approx([20, 20])
    assert regrets[0.5] == pytest.approx([0, 10])
    assert regrets[1.0] == pytest.approx([10, 0])


def test_the_regret_of_a_rule_is_the_mean_and_the_largest_of_each_encoder(run):
    other = run.with_header(model="other", dimension=128)  # 20 is too little spread among as many dimensions
    table = compared.regret_table(run, other)
    (_, first), (_, second), (_, whole) = ((row[0], dict(zip(table.columns, row, strict=True))) for row in table.rows)
    assert [line["cells"] for line in (first, second, whole)] == ["2", "2", "4"]
    assert first["γ = 0"] == whole["γ = 0"] == "20.00 (20.00)"
    assert (first["rule"], second["rule"]) == ("10.00 (15.00)", "5.00 (10.00)")  # unchanged, and γ = 1
    cut = tables.table_of([run, run], "regret_table", ["encoder=^all$", "columns=^(encoder|γ_=_0.5)$", "plain"])
    assert (cut.columns, cut.text_columns, cut.caption) == (["encoder", "γ = 0.5"], 1, "")
    assert cut.rows == [["all", "5.00 (10.00)"]]
    with pytest.raises(InputError, match="COLUMN=PATTERN"):
        tables.table_of([run, run], "regret_table", ["encodr=x"])


def test_the_smallest_size_that_loses_less_than_half_a_point(run):
    estimates = {4: estimate(-1.0, -1.4, -0.6), 8: estimate(-0.2, -0.45, 0.05)}
    rows = [row.but(versus_raw=estimates.get(row.bytes)) for row in run.rows]
    line, *rest = compared.tasks_table(Run(run.header, rows)).rows
    assert [line[2], *(other[2] for other in rest)] == ["none", "0", "0.25", "0.5", "1"]
    assert [cell.partition(" ")[0] for cell in line[-3:]] == ["-1.00∗", "-0.20", "8"]
    rows = [row.but(versus_raw=estimate(-0.4, -1.4, 0.6)) for row in run.rows]
    assert compared.tasks_table(Run(run.header, rows)).rows[0][-1] == "cannot tell below 1.3"
    rows = [row.but(versus_raw=estimates[4]) for row in run.rows]
    assert compared.tasks_table(Run(run.header, rows)).rows[0][-1] == "none"


def test_braces_name_several_runs(folder, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for name in ("a-x", "b-x"):
        run = Run.load(folder / "runs" / "tiny")
        run.with_header(complete=True, title=name).save(tmp_path / "docs" / "runs" / f"{name}.jsonl")
    sources = [runs.find(name) for name in runs.expand_braces("{a,b}-x")]
    assert [run.header.title for run in sources] == ["a-x", "b-x"]
    assert runs.names() == ["a-x", "b-x"]
    (tmp_path / "page.md").write_text("<!-- table {a,c}-x tasks_table -->\n<!-- end -->\n")
    assert tables.fill(tmp_path / "page.md") == ["{a,c}-x"]
    with pytest.raises(InputError, match="tasks_table"):
        tables.table_of(sources, "task_table", [])


def test_a_database_has_a_row_with_every_map():
    setting = {"part": "quality", "encoder": "e", "data": "d", "size": 48}
    rows = [
        setting | {"size": None, "database": "float32", "map": "raw", "mrr_at_10": 0.5},
        setting | {"database": "jaxwhiten", "map": "pq", "mrr_at_10": 0.4},
        setting | {"database": "x", "map": "truncated", "mrr_at_10": 0.1, "head_less_this": [0.2, 0.1, 0.3]},
        setting | {"database": "x", "map": "PCA", "mrr_at_10": 0.2, "head_less_this": [0.1, -0.1, 0.2]},
        setting | {"database": "x", "map": "head", "mrr_at_10": 0.3},
    ]
    machine = Record(cores=2, cpu="x", load_at_start=None)
    run = Run(Record(command="", date="2026-01-01", machine=machine), [Record(row) for row in rows])
    table = databases.maps_table(run)
    assert table.rows == [["e, d", "48", "x", "50.0", "40.0", "10.0∗", "20.0", "", "30.0"]]


def test_rivals_stand_at_their_size_beside_the_spectrum_code(run):
    raw, row = run.rows[0], run.rows[1]
    near, far = estimate(-0.2, -0.45, 0.05), estimate(-0.4, -0.6, -0.2)
    row = row.but(distortion=0.4, bound=0.3, float32_recall_at_10=0.9)
    rows = [
        raw,
        row.but(bytes=4, versus_raw=far),
        row.but(bytes=8, versus_raw=near),
        row.but(code="ubinary", bytes=3, versus_raw=far, versus_spectrum=far, whitening="none"),
        row.but(code="pq", bytes=9, versus_raw=far),
    ]
    mixed = Run(run.header, rows)
    table = compared.rivals_table(mixed)
    assert table.columns[1:] == ["bytes", "lost/bound", "spectrum", "ubinary"]
    assert [cells[1:] for cells in table.rows] == [
        ["4", "40.0/30.0", "-0.40±0.20 0.900", "-0.40↓ 0.900"],
        ["8", "40.0/30.0", "-0.20±0.25 0.900", "–"],
        ["4", "", "-0.40 0.900", "-0.40 0.900"],
        ["8", "", "-0.20 0.900", "–"],
    ]
    assert compared.tasks_table(mixed).rows[0][-1] == "8"
    later = Run(mixed.header, [raw, rows[1].but(versus_raw=near), rows[2]])
    near_both = [cells[3:] for cells in compared.rivals_table(mixed, later).rows[:2]]
    assert near_both == [["-0.20±0.25 0.900", "-0.40↓ 0.900"], ["-0.20±0.25 0.900", "–"]]
