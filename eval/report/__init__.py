"""Views of runs: tables for the terminal and Markdown, and plots. Nothing is scored here.

A program declares its tables beside its rows: `TABLES`, by name, of which each takes one run or several.
"""

from eval.report.table import Columns, Table, cut, figure, number, table
from eval.report.views import Views

__all__ = ["Columns", "Table", "Views", "cut", "figure", "number", "table"]
