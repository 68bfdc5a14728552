"""Glow on vectors, in Flax NNX: an invertible map to a Gaussian.

One step is an actnorm, a fixed permutation, and an additive coupling. A level is several steps. After each level except
the last, half of the dimensions leave as Gaussian noise and the other half enter the next level. Additive couplings and
permutations keep volumes, so that the log-determinant is the sum of the actnorms' log scales for every vector.

References:
  Kingma, Dhariwal: Glow: Generative Flow with Invertible 1x1 Convolutions (2018), section 3.
  Dinh, Krueger, Bengio: NICE: Non-linear Independent Components Estimation (2015), section 3.2.
  Dinh, Sohl-Dickstein, Bengio: Density estimation using Real NVP (2017), section 3.6, on levels.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

# Log scales are stored divided by this factor, as in Glow's release, so that they learn faster than other parameters.
_LOG_SCALE_FACTOR = 3.0
_KERNEL_STDDEV = 0.05


def _matmul(x: Float[Array, "n a"], kernel: Float[Array, "a b"]) -> Float[Array, "n b"]:
    return jnp.matmul(x, kernel, precision=jax.lax.Precision.HIGHEST)


def _random_kernel(inputs: int, outputs: int, rng: np.random.Generator) -> Float[Array, "a b"]:
    return jnp.asarray(_KERNEL_STDDEV * rng.standard_normal((inputs, outputs), np.float32))


class ActNorm(nnx.Module):
    """A bias and a scale per dimension; `initialize` sets both so that the given rows leave standardized."""

    def __init__(self, d: int):
        self.bias = nnx.Param(jnp.zeros(d))
        self.log_scale = nnx.Param(jnp.zeros(d))

    def __call__(self, x: Float[Array, "n d"], initialize: bool = False) -> Float[Array, "n d"]:
        if initialize:
            self.bias[...] = -x.mean(axis=0)
            self.log_scale[...] = -jnp.log(x.std(axis=0) + 1e-6) / _LOG_SCALE_FACTOR
        return (x + self.bias[...]) * jnp.exp(_LOG_SCALE_FACTOR * self.log_scale[...])

    def log_determinant(self) -> Float[Array, ""]:
        """log |det| of the Jacobian."""
        return _LOG_SCALE_FACTOR * self.log_scale[...].sum()


class Shift(nnx.Module):
    """The shift that an additive coupling adds: a network of two hidden layers, zero before training."""

    def __init__(self, inputs: int, outputs: int, width: int, rng: np.random.Generator):
        self.kernel1 = nnx.Param(_random_kernel(inputs, width, rng))
        self.norm1 = ActNorm(width)
        self.kernel2 = nnx.Param(_random_kernel(width, width, rng))
        self.norm2 = ActNorm(width)
        self.kernel3 = nnx.Param(jnp.zeros((width, outputs)))
        self.bias = nnx.Param(jnp.zeros(outputs))
        self.log_scale = nnx.Param(jnp.zeros(outputs))

    def __call__(self, x: Float[Array, "n a"], initialize: bool = False) -> Float[Array, "n b"]:
        hidden = jax.nn.relu(self.norm1(_matmul(x, self.kernel1[...]), initialize))
        hidden = jax.nn.relu(self.norm2(_matmul(hidden, self.kernel2[...]), initialize))
        return (_matmul(hidden, self.kernel3[...]) + self.bias[...]) * jnp.exp(_LOG_SCALE_FACTOR * self.log_scale[...])


class Step(nnx.Module):
    """An actnorm, a reversal of the dimensions, and a shift of the second half by a function of the first."""

    def __init__(self, d: int, width: int, rng: np.random.Generator):
        self.half = d // 2
        self.norm = ActNorm(d)
        self.shift = Shift(self.half, d - self.half, width, rng)

    def __call__(self, x: Float[Array, "n d"], initialize: bool = False) -> Float[Array, "n d"]:
        first, second = jnp.split(self.norm(x, initialize)[:, ::-1], [self.half], axis=1)
        return jnp.concatenate([first, second + self.shift(first, initialize)], axis=1)


class Glow(nnx.Module):
    """The whole flow: `depth` steps on each of `levels` levels, for at least 2^levels dimensions.

    `rng` draws the kernels on the host, because XLA would compile every draw.
    """

    def __init__(self, d: int, levels: int, depth: int, width: int, rng: np.random.Generator):
        # The size of each level is half of the level before, rounded up.
        sizes = [d]
        for _ in range(levels - 1):
            sizes.append(sizes[-1] - sizes[-1] // 2)
        self.sizes = tuple(sizes)
        self.levels = nnx.List([nnx.List([Step(size, width, rng) for _ in range(depth)]) for size in sizes])

    def __call__(self, x: Float[Array, "n d"], initialize: bool = False) -> Float[Array, "n d"]:
        """Maps vectors to their Gaussian latents; the dimensions that leave last come first.

        `initialize` sets every actnorm by its input.
        """
        left = []
        for size, steps in zip(self.sizes, self.levels, strict=True):
            left.append(x[:, size:])
            x = x[:, :size]
            for step in steps:
                x = step(x, initialize)
        return jnp.concatenate([x, *reversed(left)], axis=1)

    def log_determinant(self) -> Float[Array, ""]:
        """log |det| of the Jacobian, the same for every vector."""
        zero = jnp.zeros(())
        levels = (sum((step.norm.log_determinant() for step in steps), start=zero) for steps in self.levels)
        return sum(levels, start=zero)

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """log p(x) in nats: the Gaussian density of the latent times the change of volume."""
        z = self(x)
        return self.log_determinant() - 0.5 * (z**2).sum(axis=1) - 0.5 * z.shape[1] * math.log(2 * math.pi)
