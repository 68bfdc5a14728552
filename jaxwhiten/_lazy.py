"""Imports that wait for their first use, so that importing a package imports little, and imports that find nothing."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package for what it imports under `TYPE_CHECKING`."""
    tree = ast.parse(inspect.getsource(sys.modules[package]))
    imports = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    where = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name in where:
            module, original = where[name]
            with uncollected():
                return getattr(importlib.import_module(module), original)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*where, *getattr(sys.modules[package], "__all__", ())})


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Pauses the garbage collector for the imports of the block: it takes a fifth of JAX's, and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def hidden(module: str) -> Iterator[None]:
    """Makes imports in the block find a module missing, unless it is already imported."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
