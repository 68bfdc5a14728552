"""Activations by their names in a `config.json`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxwhiten.errors import check_name
from jaxwhiten.models.config import ACTIVATIONS


def gelu(x: jax.Array) -> jax.Array:
    """GELU by the error function. `jax.nn.gelu` takes its complement, which costs twice as much on CPU.

    References:
      Hendrycks & Gimpel 2016, "Gaussian Error Linear Units (GELUs)", section 2.
    """
    return x * (1 + jax.lax.erf(x * math.sqrt(0.5))) / 2


_BY_TANH = functools.partial(jax.nn.gelu, approximate=True)
_Function = Callable[[jax.Array], jax.Array]
_FUNCTIONS: tuple[_Function, ...] = (gelu, _BY_TANH, _BY_TANH, jax.nn.relu, jax.nn.silu, jax.nn.silu, jnp.tanh)


def activation(name: str) -> _Function:
    """The activation function called `name` in a `config.json`."""
    check_name("hidden_act", name, ACTIVATIONS)
    return dict(zip(ACTIVATIONS, _FUNCTIONS, strict=True))[name]
