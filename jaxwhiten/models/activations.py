"""Activations by their names in a `config.json`."""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxwhiten.errors import unknown_name
from jaxwhiten.lazy import Array, jax, jnp


def gelu(x: Array) -> Array:
    """GELU by the error function. `jax.nn.gelu` takes its complement, which costs twice as much on CPU.

    References:
      Hendrycks & Gimpel 2016, "Gaussian Error Linear Units (GELUs)", section 2.
    """
    return x * (1 + jax.lax.erf(x * math.sqrt(0.5))) / 2


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": lambda x: jax.nn.relu(x),
    "silu": lambda x: jax.nn.silu(x),
    "swish": lambda x: jax.nn.silu(x),
    "tanh": lambda x: jnp.tanh(x),
}


def activation(name: str) -> Callable[[Array], Array]:
    """The activation function called `name` in a `config.json`."""
    if name not in ACTIVATIONS:
        raise unknown_name("hidden_act", name, ACTIVATIONS)
    return ACTIVATIONS[name]
