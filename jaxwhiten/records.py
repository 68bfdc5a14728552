"""JSON: dataclasses and numbers that it lacks are converted when it is written, and types checked when it is read."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from jaxwhiten.errors import REASON, FormatError, JaxwhitenError, turning

T = TypeVar("T")
_INVALID = (OSError, ValueError, RecursionError)


def to_json(value: object) -> Any:
    """Converts dataclasses to dictionaries, and NaN and infinities, which JSON lacks, to None.

    A field that is None is omitted if None is its default.
    """
    if dataclasses.is_dataclass(value):
        pairs = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: to_json(item) for f, item in pairs if item is not None or f.default is not None}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(
    path: Path,
    kind: type[T] | types.GenericAlias,
    remedy: str = "Rewrite it.",
    *,
    error: type[JaxwhitenError] = FormatError,
    others: bool = False,
) -> T:
    """The value in a file of JSON, as `from_json` makes it; `error` if the file is missing or is not JSON, too.

    >>> read(Path("cross/config.json"), dict[str, Any])["model_type"]
    'bert'
    """
    with turning(error, f"{path}: cannot be read ({REASON}). {remedy}", OSError, ValueError):
        if not path.is_file():  # opening a pipe would wait for ever
            raise FileNotFoundError("no such file")
        text = path.read_text(encoding="utf-8")
    return parse(text, kind, path, remedy, error=error, others=others)


def parse(
    text: str | bytes,
    kind: type[T] | types.GenericAlias,
    where: object,
    remedy: str = "Rewrite it.",
    *,
    error: type[JaxwhitenError] = FormatError,
    others: bool = False,
) -> T:
    """The value in a text of JSON that was read from `where`, as `from_json` makes it.

    >>> parse('{"rows": 2}', dict[str, int], "rows.json")
    {'rows': 2}
    """
    with turning(error, f"{where}: not readable as JSON ({REASON}). {remedy}", *_INVALID):
        value = json.loads(text)
    parsed: T = from_json(kind, value, where, remedy, error=error, others=others)
    return parsed


def from_json(
    kind: Any,
    value: object,
    where: object,
    remedy: str = "Rewrite it.",
    *,
    error: type[JaxwhitenError] = FormatError,
    others: bool = False,
) -> Any:
    """Converts a value of `json.loads` to a type.

    `kind` is a dataclass, a TypedDict, `list[...]`, `tuple[..., ...]`, `dict[str, ...]`, a union, `Any`, or a plain
    type. An int is accepted as a float, and null as a NaN if None is not allowed. With `others`, keys that a dataclass
    or TypedDict does not name are ignored. Everything else is an `error` that names the entry, the file `where`, what
    is expected there, and the `remedy`; so is a number outside the bounds of a `parameters.bounded` field.
    """
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and types.NoneType in arguments:
            return None
        same = [one for one in arguments if isinstance(one, type) and type(value) is one]
        kind = (same or [one for one in arguments if one is not types.NoneType])[0]
        return from_json(kind, value, where, remedy, error=error, others=others)
    if kind is Any:
        return value
    if kind is float and (value is None or type(value) is float or (type(value) is int and abs(value) < 2**1023)):
        if value is None:
            return math.nan
        return float(value)
    inner = functools.partial(from_json, remedy=remedy, error=error, others=others)
    if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind):
        if isinstance(value, dict):
            hints = typing.get_type_hints(kind)
            if missing := sorted(_required(kind) - set(value)):
                raise error(f"{where}: {', '.join(missing)}: missing. {remedy}")
            if not others and (unknown := sorted(set(value) - set(hints))):
                raise error(f"{where}: {', '.join(unknown)}: unknown. {remedy}")
            items = {name: item for name, item in value.items() if name in hints}
            fields = {name: inner(hints[name], item, f"{where}: {name}") for name, item in items.items()}
            for name, field in getattr(kind, "__dataclass_fields__", {}).items():
                if name in fields and (bounds := field.metadata.get("bounds")) and not bounds.hold(fields[name]):
                    raise error(f"{where}: {name}: expected {bounds.words}, got {fields[name]!r:.80}. {remedy}")
            return kind(**fields)
    elif origin is dict:
        if isinstance(value, dict):
            return {key: inner(arguments[1], item, f"{where}: {key}") for key, item in value.items()}
    elif origin in (list, tuple):
        if isinstance(value, list):
            if arguments[0] is Any or (arguments[0] in (str, int) and set(map(type, value)) <= {arguments[0]}):
                return origin(value)  # at once: there may be millions
            return origin(inner(arguments[0], item, f"{where}, item {i}") for i, item in enumerate(value))
    elif isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
        return value
    raise error(f"{where}: expected {_words(kind, origin)}, got {value!r:.80}. {remedy}")


def _required(kind: Any) -> set[str]:
    """The keys that an object of a TypedDict or dataclass must have."""
    if typing.is_typeddict(kind):
        return set(kind.__required_keys__)
    missing = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing}


def _words(kind: Any, origin: Any) -> str:
    if origin in (list, tuple):
        return "a list"
    return {int: "an integer", float: "a number", str: "text", bool: "true or false"}.get(kind, "an object")
