"""Learning-rate schedules, and the optimiser as one Optax transformation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import optax

from jaxwhiten.errors import InputError, unknown_name

DECAYS: dict[str, Callable[[float, int], optax.Schedule]] = {
    "linear": lambda peak, steps: optax.linear_schedule(peak, 0.0, steps),
    "cosine": optax.cosine_decay_schedule,
    "constant": lambda peak, steps: optax.constant_schedule(peak),
}
OPTIMIZERS = ("adamw", "adam")


def make_schedule(peak: float, steps: int, *, warmup: float = 0.1, decay: str = "linear") -> optax.Schedule:
    """Linear warm-up to `peak`, then decay towards zero at `steps`.

    Args:
      peak: Highest learning rate.
      steps: Optimiser steps of the whole run.
      warmup: Share of the steps spent warming up, rounded up to whole steps.
      decay: One of `DECAYS`.

    Returns:
      A schedule from step (counted from 0) to learning rate. With a warm-up the first step has rate 0, as in
      transformers' schedules.

    Raises:
      InputError: A mistyped decay, no steps, or a share outside 0-1.
    """
    if decay not in DECAYS:
        raise unknown_name("decay", decay, DECAYS)
    if steps < 1 or not 0 <= warmup < 1:
        raise InputError(f"A schedule needs at least one step and a warm-up share in [0, 1): got {steps}, {warmup}.")
    warmup_steps = math.ceil(steps * warmup)
    after = DECAYS[decay](peak, max(steps - warmup_steps, 1))
    if warmup_steps == 0:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup_steps), after], [warmup_steps])


def make_optimizer(
    schedule: optax.Schedule,
    *,
    name: str = "adamw",
    weight_decay: float = 0.01,
    clip_norm: float = 1.0,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    """Gradient clipping followed by Adam or AdamW.

    Args:
      schedule: Learning rate by step.
      name: `"adamw"` or `"adam"`.
      weight_decay: AdamW's decoupled weight decay; biases and norms (arrays with one axis) are exempt.
      clip_norm: Maximum global norm of the gradient; 0 disables clipping.
      b2: Decay rate of the second moment.
      eps: Added to the square root of the second moment.

    Raises:
      InputError: A mistyped optimiser.

    References:
      Kingma and Ba, Adam (ICLR 2015), algorithm 1; Loshchilov and Hutter, AdamW (ICLR 2019), algorithm 2.
    """
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    if name == "adam":
        rule = optax.adam(schedule, b2=b2, eps=eps)
    else:
        matrices = functools.partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
        rule = optax.adamw(schedule, b2=b2, eps=eps, weight_decay=weight_decay, mask=matrices)
    return optax.chain(optax.clip_by_global_norm(clip_norm), rule) if clip_norm > 0 else rule
