"""Filters of documents by their ids, texts and metadata: an expression of SQL, or conditions as JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxwhiten.errors import InputError, check_name
from jaxwhiten.store import SQLite, quoted
from jaxwhiten.types import Int64, Json

Where = str | Mapping[str, Any]
_COMPARISONS = {"eq": "=", "ne": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_STEPS = 1_000_000  # of SQLite's machine between two looks
_MOST = 2_000  # looks until a filter is given up: 30 s to a minute
_FUNCTIONS = {
    *("abs", "coalesce", "date", "datetime", "glob", "hex", "ifnull", "instr", "json_extract", "json_type"),
    *("julianday", "length", "like", "lower", "ltrim", "max", "min", "nullif", "replace", "round", "rtrim", "strftime"),
    *("substr", "substring", "time", "trim", "typeof", "unicode", "upper", "->", "->>"),
}


def rows_where(database: SQLite, where: Where) -> Int64[np.ndarray, " m"]:
    """The rows of the documents for which a filter holds, in ascending order.

    Raises:
      InputError: The filter is no expression, names an unknown column, does more than compare columns of the documents,
        or takes too long.
    """
    columns = [name for _, name, *_ in database.rows("PRAGMA table_xinfo(documents)")]
    if isinstance(where, str):
        expression, values = where, list[Any]()
    else:
        expression, values = _of_conditions(where, columns)
    looks = iter(range(_MOST))
    try:
        rows = database.guarded(
            f"SELECT row FROM documents WHERE ({expression}\n) ORDER BY row",
            values,
            _allowed,
            (lambda: next(looks, None) is None, _STEPS),
        )
    except (sqlite3.Error, sqlite3.Warning) as error:
        reason = str(error)
        if reason == "interrupted":
            reason = "it takes too long"
        elif reason in ("not authorized", "authorization denied") or "prohibited" in reason or "function" in reason:
            reason = f"{reason}: a filter only compares columns of the documents"
        listed = ", ".join(columns)
        raise InputError(
            f"where={where!r:.200}: {reason}. Columns are {listed}; texts are in 'single quotes'."
        ) from None
    return np.array([row for (row,) in rows], np.int64)


def _allowed(action: int, name: str | None, detail: str | None, schema: str | None, inner: str | None) -> int:
    """Whether a part of a statement only reads documents."""
    reads = action == sqlite3.SQLITE_READ and name == "documents"
    calls = action == sqlite3.SQLITE_FUNCTION and detail in _FUNCTIONS
    return sqlite3.SQLITE_OK if action == sqlite3.SQLITE_SELECT or reads or calls else sqlite3.SQLITE_DENY


def _of_conditions(where: Json | Mapping[str, Any], columns: list[str]) -> tuple[str, list[Any]]:
    """The expression of conditions that all hold, and its values.

    >>> _of_conditions({"date": {"gte": "2024"}, "lang": ["en", "de"]}, ["date", "lang"])
    ('"date" >= ? AND "lang" IN (?, ?)', ['2024', 'en', 'de'])
    """
    parts = list[str]()
    values = list[Any]()
    for name, condition in where.items():
        check_name("column of the documents", name, columns)
        if not isinstance(condition, Mapping):
            condition = {"in" if isinstance(condition, list | tuple) else "eq": condition}
        for comparison, value in condition.items():
            check_name("comparison", comparison, (*_COMPARISONS, "in"))
            if comparison == "in":
                if not isinstance(value, list | tuple):
                    raise InputError(f"where: {name}: `in` expects a list of values, got {value!r:.80}.")
                parts.append(f"{quoted(name)} IN ({', '.join('?' * len(value))})")
                values += map(_value, value)
            elif value is None and comparison in ("eq", "ne"):
                parts.append(f"{quoted(name)} IS {'NOT ' * (comparison == 'ne')}NULL")
            else:
                parts.append(f"{quoted(name)} {_COMPARISONS[comparison]} ?")
                values.append(_value(value))
    return " AND ".join(parts) or "1", values


def _value(value: Any) -> Any:
    if not isinstance(value, str | int | float) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise InputError(f"where: expected a text or a number to compare with, got {value!r:.80}.")
    return value
