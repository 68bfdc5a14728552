"""Views of results: tables for the terminal and Markdown, plots, and pages. Nothing is scored here.

Every evaluation has a module of its name, whose tables, `write_...` and `as_text` show a `Run` of it.
"""

from jaxwhiten.report import codes, results, retrieval, static, sts
from jaxwhiten.report.page import PAGE
from jaxwhiten.report.run import Run
from jaxwhiten.report.table import Table
from jaxwhiten.report.training import write_training
from jaxwhiten.report.views import remove_views
