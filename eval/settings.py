"""Config values from the command line as checked tuples: `"256,128"`, `256` and `(256, 128)` are all accepted."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from configs.settings import WHITENING, Whitened
from eval.runs import Record
from jaxwhiten.errors import InputError, unknown_name

T = TypeVar("T")
RAW = {"beta": 0.0, "gamma": 0.0}  # the parameters of raw vectors


def words(key: str, value: object) -> tuple[str, ...]:
    """The items of a comma-separated string or a sequence, at least one, without repeats."""
    items: Iterable[object]
    if isinstance(value, str):
        items = value.strip("()[] ").split(",")
    elif isinstance(value, Iterable):
        items = value
    else:
        items = [value]
    names = tuple(dict.fromkeys(text for item in items if (text := str(item).strip(" '\""))))
    if not names:
        raise InputError(f"config.{key} is empty; give at least one, separated by commas.")
    return names


def choices(key: str, value: object, valid: Sequence[str]) -> tuple[str, ...]:
    """`words`, each checked against the valid names."""
    names = words(key, value)
    for name in names:
        if name not in valid:
            raise unknown_name(f"config.{key}", name, valid)
    return names


def optional_choices(key: str, value: object, valid: Sequence[str]) -> tuple[str, ...]:
    """`choices`, none for an empty value."""
    if not value:
        return ()
    return choices(key, value, valid)


def integers(key: str, value: object) -> tuple[int, ...]:
    """`words` as integers of at least 0."""
    return _numbers(key, value, int, "a whole number of at least 0", lambda number: number >= 0)


def fractions(key: str, value: object) -> tuple[float, ...]:
    """`words` as numbers from 0 to 1."""
    return _numbers(key, value, float, "a number from 0 to 1", lambda number: 0 <= number <= 1)


def parameters(config: Whitened) -> tuple[dict[str, Any], ...]:
    """Every combination of the parameters of `Whitening` that a config lists; dimensions are listed separately.

    A combination has β and γ, and all other parameters that differ from their defaults.
    """
    listed = {}
    for knob in WHITENING.values():
        if hasattr(config, knob.name):
            meaning = knob.metadata["help"]
            if isinstance(knob.default, float):
                meaning = "a number from 0 to 1"
            parse = functools.partial(_parsed, knob.metadata["bounds"])
            values = _numbers(knob.name, getattr(config, knob.name), parse, meaning, _is_share_or_name)
            listed[knob.name] = [(knob.name, value, value == knob.default) for value in values]
    return tuple(
        {name: value for name, value, usual in chosen if not usual or name in ("beta", "gamma")}
        for chosen in itertools.product(*listed.values())
    )


def _parsed(bounds: Any, text: str) -> float | str | None:
    """The value of a parameter of `Whitening`; ValueError if the text stands for none."""
    if bounds.none and text == "none":
        return None
    return text if text in bounds.names else float(text)


def _is_share_or_name(value: object) -> bool:
    return not isinstance(value, int | float) or 0 <= value <= 1


def row_fields(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that hold the parameters of its whitening; β and γ are 0 for raw vectors."""
    further = {name: value for name, value in parameters.items() if name not in ("beta", "gamma")}
    return {"beta": parameters["beta"], "gamma": parameters["gamma"], "further": further or None}


NO_WHITENING: dict[str, Any] = {"beta": None, "gamma": None, "further": None}  # the same fields for other methods


def symbols(row: Record) -> dict[str, str]:
    """β, γ and further parameters of a row's whitening as text; empty for raw vectors and other methods."""
    if row.whitening == "none" or row.beta is None:
        return {}
    values = {"β": row.beta, "γ": row.gamma, **(row.further or {})}
    return {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()}


def knobs(row: Record) -> str:
    """The parameters as text to append to a setting's name; empty if there are none."""
    return "".join(f", {name}={value}" for name, value in symbols(row).items())


def combinations(rows: Sequence[Record]) -> list[dict[str, str]]:
    """The parameters of the whitenings in the rows, each combination once."""
    listed = [parameters for row in rows if (parameters := symbols(row))]
    return [parameters for i, parameters in enumerate(listed) if parameters not in listed[:i]]


def label(row: Record) -> str:
    """The whitening of a row, marked if it is transductive."""
    return row.whitening + " †" * row.transductive


def setting_name(row: Record) -> str:
    """Pooling, whitening and k of a row."""
    return f"{row.pooling}, {label(row)}, k={row.k}"


def _numbers(
    key: str, value: object, kind: Callable[[str], T], meaning: str, valid: Callable[[T], bool]
) -> tuple[T, ...]:
    numbers = []
    for text in words(key, value):
        try:
            numbers.append(kind(text))
            is_valid = valid(numbers[-1])
        except ValueError:
            is_valid = False
        if not is_valid:
            raise InputError(f"config.{key}: {text!r} is not {meaning}.")
    return tuple(dict.fromkeys(numbers))
