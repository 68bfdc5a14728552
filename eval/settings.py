"""Config values as the command line gives them, as checked tuples: `"256,128"`, `256` and `(256, 128)` alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from jaxwhiten.errors import InputError, unknown_name

T = TypeVar("T")


def words(key: str, value: Any) -> tuple[str, ...]:
    """The items of a comma-separated string or a sequence, at least one, without repeats."""
    items = (
        value.strip("()[] ").split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    )
    found = tuple(dict.fromkeys(text for item in items if (text := str(item).strip(" '\""))))
    if not found:
        raise InputError(f"config.{key} is empty; give at least one, separated by commas.")
    return found


def choices(key: str, value: Any, valid: Sequence[str]) -> tuple[str, ...]:
    """`words`, each one of the valid names."""
    found = words(key, value)
    for name in found:
        if name not in valid:
            raise unknown_name(f"config.{key}", name, valid)
    return found


def integers(key: str, value: Any) -> tuple[int, ...]:
    """`words` as integers of at least 0."""
    return _numbers(key, value, int, "a whole number of at least 0", lambda number: number >= 0)


def fractions(key: str, value: Any) -> tuple[float, ...]:
    """`words` as numbers from 0 to 1."""
    return _numbers(key, value, float, "a number from 0 to 1", lambda number: 0 <= number <= 1)


def _numbers(key: str, value: Any, kind: Callable[[str], T], meaning: str, valid: Callable[[T], bool]) -> tuple[T, ...]:
    found = []
    for text in words(key, value):
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not valid(number):
            raise InputError(f"config.{key}: {text!r} is not {meaning}.")
        found.append(number)
    return tuple(dict.fromkeys(found))
