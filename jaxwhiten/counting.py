"""Numbers of things in sentences."""

import re


def counted(number: int, things: str) -> str:
    """A number with a noun, which is given in the plural.

    >>> counted(1, "queries"), counted(1, "axes"), counted(1234, "rows")
    ('1 query', '1 axis', '1,234 rows')
    """
    if number == 1:
        ends = {"ies": "y", "axes": "axis"}
        things = re.sub(r"\baxes\b|(?<=ch)es\b|ies\b|s\b", lambda end: ends.get(end[0], ""), things, count=1)
    return f"{number:,} {things}"
