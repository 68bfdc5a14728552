"""Views of results: tables for the terminal and Markdown, and plots. Nothing is scored here.

Every evaluation has a module of its name, whose tables and `VIEWS` show a `Run` of it; `benchmarks` shows what the
benchmarks wrote.
"""

from eval.report import benchmarks, codes, results, retrieval, static, sts
from eval.report.run import Run
from eval.report.table import Table
from eval.report.views import remove_views

__all__ = ["Run", "Table", "benchmarks", "codes", "remove_views", "results", "retrieval", "static", "sts"]
