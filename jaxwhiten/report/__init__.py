"""Views of results: tables for the terminal and Markdown, plots, and pages. Nothing is scored here."""

from jaxwhiten.report import codes, results, retrieval, static
from jaxwhiten.report.page import PAGE
from jaxwhiten.report.run import Run
from jaxwhiten.report.sts import (
    as_text,
    average_table,
    cost_table,
    difference_table,
    gain_table,
    geometry_table,
    interval_table,
    published_table,
    ranking_table,
    sts_table,
    write_sts,
)
from jaxwhiten.report.table import Table
from jaxwhiten.report.training import write_training
from jaxwhiten.report.views import remove_views

__all__ = [
    "PAGE",
    "Run",
    "Table",
    "as_text",
    "average_table",
    "codes",
    "cost_table",
    "difference_table",
    "gain_table",
    "geometry_table",
    "interval_table",
    "published_table",
    "ranking_table",
    "remove_views",
    "results",
    "retrieval",
    "static",
    "sts_table",
    "write_sts",
    "write_training",
]
