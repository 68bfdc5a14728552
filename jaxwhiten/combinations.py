"""Options that exclude or need each other: tables of rules, which one loop checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jaxwhiten.errors import InputError
from jaxwhiten.typing import Fields


class Rule(NamedTuple):
    """Options of which at most some may be specified: always, beside others, or without others.

    >>> needs = Rule(("keep",), "`keep` requires `into`.", without=("into",))
    >>> check_options([needs], {"keep": True, "into": None})
    Traceback (most recent call last):
    jaxwhiten.errors.InputError: `keep` requires `into`.
    """

    names: tuple[str, ...]
    message: str  # may have options in braces, {given} and {beside}, which are the names that are specified
    beside: tuple[str, ...] = ()  # the rule holds only if one of these is specified
    without: tuple[str, ...] = ()  # ... and none of these
    most: int = 0


def check_options(rules: Iterable[Rule], options: Fields) -> None:
    """Raises InputError with the message of the first rule that options break.

    An option is specified unless it is None, False, or an empty text or list.
    """
    empty = (str, list, tuple, dict)
    missing = {name for name, value in options.items() if value is None or value is False}
    missing |= {name for name, value in options.items() if isinstance(value, empty) and not value}
    specified = options.keys() - missing
    for names, message, beside, without, most in rules:
        specified_names = [name for name in names if name in specified]
        others = [name for name in beside if name in specified]
        if len(specified_names) > most and (others or not beside) and not any(name in specified for name in without):
            raise InputError(
                message.format_map({**options, "given": _quoted(specified_names), "beside": _quoted(others)})
            )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
