"""Views of results: tables for the terminal and Markdown, plots, and pages. Nothing is scored here.

Every evaluation has a module of its name, whose tables and `VIEWS` show a `Run` of it.
"""

from eval.report import codes, results, retrieval, static, sts
from eval.report.page import PAGE
from eval.report.run import Run
from eval.report.table import Table
from eval.report.training import write_training
from eval.report.views import remove_views

__all__ = ["PAGE", "Run", "Table", "codes", "remove_views", "results", "retrieval", "static", "sts", "write_training"]
