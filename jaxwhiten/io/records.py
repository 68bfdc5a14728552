"""JSON: dataclasses and numbers that it lacks are converted when it is written, and types checked when it is read."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from jaxwhiten.errors import REASON, FormatError, JaxwhitenError, turning

T = TypeVar("T")
_NAMES = {int: "an integer", float: "a number", str: "text", bool: "true or false", list: "a list", tuple: "a list"}


def to_json(value: object) -> Any:
    """Converts dataclasses to dictionaries, and NaN and infinities, which JSON lacks, to None.

    A field that is None is omitted if None is its default.

    >>> to_json({"score": float("nan")})
    {'score': None}
    """
    if dataclasses.is_dataclass(value):
        pairs = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: to_json(item) for f, item in pairs if item is not None or f.default is not None}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(
    path: Path,
    kind: type[T] | types.GenericAlias,
    remedy: str = "Rewrite it.",
    error: type[JaxwhitenError] = FormatError,
) -> T:
    """The value in a file of JSON, as `from_json` makes it; `error` if the file is missing or is not JSON, too.

    >>> read_json(Path("cross/config.json"), dict)["model_type"]
    'bert'
    """
    with turning(error, f"{path}: cannot be read ({REASON}). {remedy}", OSError, ValueError):
        if not path.is_file():  # opening a pipe would wait for ever
            raise FileNotFoundError("no such file")
        text = path.read_text(encoding="utf-8")
    return parse_json(text, kind, path, remedy, error)


def parse_json(
    text: str | bytes,
    kind: type[T] | types.GenericAlias,
    where: object,
    remedy: str = "Rewrite it.",
    error: type[JaxwhitenError] = FormatError,
) -> T:
    """The value in a text of JSON that was read from `where`, as `from_json` makes it.

    >>> parse_json('{"rows": 2}', dict[str, int], "rows.json")
    {'rows': 2}
    """
    with turning(error, f"{where}: not readable as JSON ({REASON}). {remedy}", ValueError, RecursionError):
        value = json.loads(text)
    parsed: T = from_json(kind, value, where, remedy, error)
    return parsed


def from_json(
    kind: Any, value: object, where: object, remedy: str = "Rewrite it.", error: type[JaxwhitenError] = FormatError
) -> Any:
    """Converts a value of `json.loads` to a type.

    `kind` is a dataclass, a TypedDict, `list[...]`, `tuple[..., ...]`, `dict[str, ...]`, a union, `Any`, or a plain
    type. An int is accepted as a float, and null as a NaN if None is not allowed. Keys that a dataclass or TypedDict
    does not name are ignored. Everything else is an `error` that names the entry, the file `where`, what is expected
    there, and the `remedy`; so is a number outside the bounds of an `options.bounded` field.

    >>> from_json(list[float], [1, 2.5], "rows.json")
    [1.0, 2.5]
    """
    try:
        return _converted(kind, value, "")
    except _Unexpected as unexpected:
        raise error(f"{where}: {unexpected}. {remedy}") from unexpected


class _Unexpected(Exception):
    """What is wrong with a value, and at which entry."""


def _converted(kind: Any, value: object, entry: str) -> Any:
    origin = typing.get_origin(kind) or kind
    arguments = typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and types.NoneType in arguments:
            return None
        kinds = [one for one in arguments if one is not types.NoneType]
        return _converted(next((one for one in kinds if type(value) is one), kinds[0]), value, entry)
    if kind is Any:
        return value
    if kind is float and (value is None or type(value) is float or (type(value) is int and abs(value) < 2**1023)):
        return math.nan if value is None else float(value)
    if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind):
        if isinstance(value, dict):
            return _object(kind, value, entry)
    elif origin is dict and arguments:
        if isinstance(value, dict) and arguments[1] is Any:
            return value
        if isinstance(value, dict):
            return {key: _converted(arguments[1], item, f"{entry}{key}: ") for key, item in value.items()}
    elif origin in (list, tuple):
        if isinstance(value, list):
            if arguments[0] is Any or (arguments[0] in (str, int) and set(map(type, value)) <= {arguments[0]}):
                return origin(value)  # at once: there may be millions
            return origin(_converted(arguments[0], item, f"{entry}item {i}: ") for i, item in enumerate(value))
    elif isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
        return value
    raise _Unexpected(f"{entry}expected {_NAMES.get(origin, 'an object')}, got {value!r:.80}")


def _object(kind: Any, value: dict[str, object], entry: str) -> Any:
    """An instance of a dataclass or TypedDict."""
    declared = getattr(kind, "__dataclass_fields__", {})
    missing = dataclasses.MISSING
    needed = [name for name, f in declared.items() if f.default is missing and f.default_factory is missing]
    if absent := sorted(set(getattr(kind, "__required_keys__", needed)) - set(value)):
        raise _Unexpected(f"{entry}{', '.join(absent)}: missing")
    hints = typing.get_type_hints(kind)
    fields = {name: _converted(hints[name], item, f"{entry}{name}: ") for name, item in value.items() if name in hints}
    for name, field in declared.items():
        if name in fields and (bounds := field.metadata.get("bounds")) and not bounds.hold(fields[name]):
            raise _Unexpected(f"{entry}{name}: expected {bounds.words}, got {fields[name]!r:.80}")
    return kind(**fields)
