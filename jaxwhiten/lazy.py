"""Imports that wait for their first use: JAX and Flax, which take most of a second, and the names of packages.

`from jaxwhiten.lazy import jax, jnp` gives modules that are imported once an attribute is asked for. A process that
encodes in OpenVINO, or searches by FAISS, never asks.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

_waiting: list[Callable[[], None]] = []  # for JAX


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        while _waiting:
            _waiting.pop(0)()
        return getattr(module, name)


if TYPE_CHECKING:
    import flax as flax
    import jax as jax
    import jax.numpy as jnp
    from flax import nnx as nnx
    from jax import lax as lax
    from jax.typing import DTypeLike as DTypeLike
    from jaxtyping import Array as Array
else:
    jax, jnp, lax, flax, nnx = map(_Lazy, ("jax", "jax.numpy", "jax.lax", "flax", "flax.nnx"))
    # In annotations alone; where JAX was imported first, as tests do, they are checked.
    Array, DTypeLike = (jax.Array, jax.typing.DTypeLike) if "jax" in sys.modules else (Any, Any)


def with_jax(run: Callable[[], None]) -> None:
    """Calls a function once JAX is imported, by these modules or before them."""
    if "jax" in sys.modules:
        run()
    else:
        _waiting.append(run)


@overload
def jit(function: Callable[..., Any], **how: Any) -> Callable[..., Any]: ...
@overload
def jit(function: None = None, **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def jit(function: Any = None, **how: Any) -> Any:
    """`jax.jit`, also with its arguments as a decorator, made when the function is first called."""
    return functools.partial(jit, **how) if function is None else _Jitted(function, how)


class _Jitted:
    """A function that `jax.jit` compiles, once an attribute is asked for or it is called."""

    def __init__(self, function: Callable[..., Any], how: dict[str, Any]):
        self._made = functools.cache(lambda: jax.jit(function, **how))
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._made()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)


def exports(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names, by the module they are in, are imported when first used."""
    where = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in where:
            return getattr(importlib.import_module(f"{package}.{where[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted([*vars(sys.modules[package]), *where])
