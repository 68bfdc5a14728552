"""Views of results: tables for the terminal and Markdown, and plots. Nothing is scored here."""

from jaxwhiten.report.run import Run, average
from jaxwhiten.report.sts import interval_table, published_table, remove_views, setting_name, sts_table, write_sts
from jaxwhiten.report.table import Table

__all__ = [
    "Run",
    "Table",
    "average",
    "interval_table",
    "published_table",
    "remove_views",
    "setting_name",
    "sts_table",
    "write_sts",
]
