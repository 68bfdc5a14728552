"""JSON of this package: dataclasses and numbers that JSON lacks, converted, and checked when they are read."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from jaxwhiten.errors import FormatError


def to_json(value: Any) -> Any:
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


def from_json(kind: Any, value: Any, where: object, remedy: str = "Rewrite it.", *, others: bool = False) -> Any:
    """Checks a value from `json.loads` against a type and converts it: the one check of JSON that this package wrote.

    `kind` is a dataclass, a TypedDict, `list[...]`, `tuple[..., ...]`, `dict[str, ...]`, a union, `Any`, or a plain
    type. An int is accepted as a float, and null as a NaN if None is not allowed. With `others`, keys that a dataclass
    or TypedDict does not name are ignored. Everything else is a FormatError that names the entry, the file `where` and
    the `remedy`.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    inner = functools.partial(from_json, remedy=remedy, others=others)
    if origin in (types.UnionType, typing.Union):
        if value is None and types.NoneType in arguments:
            return None
        plain = [kind for kind in arguments if isinstance(kind, type) and type(value) is kind]
        return inner((plain or [kind for kind in arguments if kind is not types.NoneType])[0], value, where)
    if kind is Any:
        return value
    if kind is float and (value is None or type(value) is float or (type(value) is int and abs(value) < 2**1023)):
        return math.nan if value is None else float(value)
    typed = typing.is_typeddict(kind)
    if typed or dataclasses.is_dataclass(kind):
        if isinstance(value, dict):
            hints = typing.get_type_hints(kind)
            if typed:
                needed = set(kind.__required_keys__)
            else:
                missing = dataclasses.MISSING
                fields = dataclasses.fields(kind)
                needed = {f.name for f in fields if f.default is missing and f.default_factory is missing}
            wrong = sorted(needed - set(value) | (set() if others else set(value) - set(hints)))
            if not wrong:
                known = {name: item for name, item in value.items() if name in hints}
                return kind(**{name: inner(hints[name], item, f"{where}: {name}") for name, item in known.items()})
            where = f"{where}: {', '.join(wrong)}"
    elif origin is dict and isinstance(value, dict):
        return {key: inner(arguments[1], item, f"{where}: {key}") for key, item in value.items()}
    elif origin in (list, tuple) and isinstance(value, list):
        return origin(inner(arguments[0], item, f"{where}, item {i}") for i, item in enumerate(value))
    elif origin is None and isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
        return value
    raise FormatError(f"{where}: not what this version of jaxwhiten writes there. {remedy}")
