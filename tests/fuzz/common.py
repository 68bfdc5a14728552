"""What the fuzz tests share: how many cases, how bytes and JSON are damaged, and the property they all check.

`JAXWHITEN_FUZZ_EXAMPLES` is the number of cases a test; with it the cases are new on every run, without it they are
always the same hundred. SECURITY.md records the long runs.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from jaxwhiten.errors import JaxwhitenError

_VARIABLE = "JAXWHITEN_FUZZ_EXAMPLES"
EXAMPLES = int(os.environ.get(_VARIABLE, "100"))
SECONDS = 20  # for one case; they take milliseconds


def fuzz(share: float = 1.0) -> settings:
    """Settings of a test that runs `share` of the cases."""
    return settings(
        max_examples=max(10, int(EXAMPLES * share)),
        deadline=None,
        derandomize=_VARIABLE not in os.environ,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


class Hang(BaseException):
    """A case took longer than `SECONDS`."""


@contextlib.contextmanager
def no_hang(seconds: int = SECONDS) -> Iterator[None]:
    """Raises `Hang` in the block after some seconds."""

    def ring(*_: Any) -> None:
        raise Hang(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(read: Callable[[], Any], names: str = "") -> tuple[Any, JaxwhitenError | None]:
    """The result of a reader, or the typed error it raised; any other exception goes on and fails the test.

    Args:
      read: The reader.
      names: What the message of an error must name.
    """
    with no_hang():
        try:
            return read(), None
        except JaxwhitenError as refused:
            error = refused
    message = str(error)
    assert message.strip()
    assert names in message, message
    return None, error


# Numbers that overflow, texts that are no names, and containers where none belong.
NUMBERS = [0, -1, 1, 7, 2**31, 2**63, 10**12, 10**400, 0.5, -1.5, 1e308, float("nan"), float("inf"), -float("inf")]
WORDS = ["", "x", "0", "../../etc/passwd", "/dev/zero", "a\0b", "\ud800", "é" * 300, "x" * 5000]
CONTAINERS = [[], {}, [1], [[]], [0, 10**18], [-1, 3], {"a": None}, {"": {"": []}}]
ODD = st.sampled_from([None, True, False, *NUMBERS, *WORDS, *CONTAINERS])


def places(value: Any, depth: int = 6) -> list[tuple]:
    """The paths of everything inside a JSON value, at most forty items of a long list or object."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    found: list[tuple] = []
    for key, item in (*items[:20], *items[20:][-20:]):
        found += [(key,), *((key, *rest) for rest in places(item, depth - 1) if depth)]
    return found


@st.composite
def damaged_json(draw, value: Any, odd: st.SearchStrategy = ODD, most: int = 3) -> Any:
    """The value with one to `most` entries replaced, removed, or added."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, most))):
        if not (paths := places(value)):
            return draw(odd)
        *path, last = draw(st.sampled_from(paths))
        parent = functools.reduce(lambda parent, key: parent[key], path, value)
        what = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
        new = copy.deepcopy(draw(odd | st.just(value)))  # or all of it once more
        if what == "remove":
            del parent[last]
        elif what == "replace":
            parent[last] = new
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(["x", "", "__class__", f"{last}2"]))] = new
        else:
            parent.append(new)
    return value


@st.composite
def damaged(draw, data: bytes, most: int = 4) -> bytes:
    """The bytes, cut short, overwritten, shifted or doubled in one to `most` places."""
    result = bytearray(data)
    strange = st.sampled_from([b"\0", b"\xff", b"\xff" * 8, b"\0" * 8, b"\x7f", b"{", b'"', b"9", b"-", b"\x80"])
    for _ in range(draw(st.integers(1, most))):
        place, length = draw(st.integers(0, len(result))), draw(st.integers(1, 64))
        new = draw(strange | st.binary(min_size=1, max_size=9))
        part = result[place : place + length]
        flipped = bytes([part[0] ^ 1 << draw(st.integers(0, 7))]) if part else b""
        changes = [(1, flipped), (len(new), new), (len(new), new), (len(result), b""), (0, new), (length, b"")]
        size, by = draw(st.sampled_from([*changes, (0, part)]))
        result[place : place + size] = by
    return bytes(result)


NESTED = "[" * 100_000


@st.composite
def json_text(draw, value: Any, odd: st.SearchStrategy = ODD) -> bytes:
    """A JSON file that was damaged: as a value, as text, or that is something else altogether."""
    kind = draw(st.sampled_from(["value", "value", "value", "value", "bytes", "other"]))
    if kind == "value":
        return json.dumps(draw(damaged_json(value, odd))).encode()
    if kind == "bytes":
        return draw(damaged(json.dumps(value).encode()))
    other = [b"", b"\0", b"null", b"[]", b"{", NESTED.encode(), b'{"a":' * 50_000, b"1" * 5000, b"\xff\xfe{}", b'"x"']
    return draw(st.sampled_from(other) | st.binary(max_size=40))
