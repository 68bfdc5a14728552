"""Rows in SQLite files: transactions, and arrays in pages with checksums."""

from jaxwhiten.store.database import SQLite, quoted, replacing
from jaxwhiten.store.pages import SCHEMA, Pages, appended

__all__ = ["SCHEMA", "Pages", "SQLite", "appended", "quoted", "replacing"]
