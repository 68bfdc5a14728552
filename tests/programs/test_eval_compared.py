"""Tables over several runs, from rows whose figures are known."""

import pytest

from eval import compared
from eval.runs import Record, Run
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
