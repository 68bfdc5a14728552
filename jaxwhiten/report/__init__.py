"""Views of results: tables for the terminal and Markdown, plots, and pages. Nothing is scored here."""

from jaxwhiten.report import retrieval
from jaxwhiten.report.methods import cost_table, geometry_table
from jaxwhiten.report.run import Run, average
from jaxwhiten.report.sts import (
    difference_table,
    interval_table,
    published_table,
    remove_views,
    setting_name,
    sts_table,
    write_sts,
)
from jaxwhiten.report.table import Table
from jaxwhiten.report.training import write_training

__all__ = [
    "Run",
    "Table",
    "average",
    "cost_table",
    "difference_table",
    "geometry_table",
    "interval_table",
    "published_table",
    "remove_views",
    "retrieval",
    "setting_name",
    "sts_table",
    "write_sts",
    "write_training",
]
