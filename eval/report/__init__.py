"""Views of results: tables for the terminal and Markdown, and plots. Nothing is scored here.

Every evaluation has a module of its name, whose tables and `VIEWS` show a `Run` of it.
"""

from eval.report import codes, results, retrieval, static, sts
from eval.report.run import Run
from eval.report.table import Table
from eval.report.views import remove_views

__all__ = ["Run", "Table", "codes", "remove_views", "results", "retrieval", "static", "sts"]
