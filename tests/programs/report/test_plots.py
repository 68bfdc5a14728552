"""Axes a reader can read."""

import pytest

from eval.report.plots import scale_amounts
from jaxwhiten.plots import new_figure


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((0.0075, 0.0135), {"0.008", "0.01", "0.012"}),
        ((0.3, 40.0), {"0.5", "1", "2", "5", "10", "20"}),
        ((2.0, 2.0), {"2"}),
    ],
)
def test_amounts_are_told_in_plain_numbers(values, labels, tmp_path):
    with new_figure(tmp_path / "plot.png", 4.0, 3.0) as figure:
        axis = figure.subplots()
        axis.plot(values, [0, 1], marker="o")
        scale_amounts(axis)
        figure.draw_without_rendering()
    assert axis.get_xscale() == "log"
    low, high = axis.get_xlim()
    texts = {tick.label1.get_text() for tick in axis.xaxis.get_major_ticks() if low <= tick.get_loc() <= high}
    assert labels <= texts
    assert len(texts) <= 9
    assert not axis.xaxis.get_minor_ticks()
