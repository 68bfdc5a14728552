"""Rows in SQLite files: transactions, and arrays in pages with checksums."""

from jaxwhiten.store.database import Database, delete, quoted, replacing
from jaxwhiten.store.pages import SCHEMA, Pages, appended

__all__ = ["SCHEMA", "Database", "Pages", "appended", "delete", "quoted", "replacing"]
