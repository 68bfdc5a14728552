"""One optimiser step as one compiled function: its learning rate, its optimiser, the state and where it lies."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Key, Scalar

from jaxwhiten.errors import InputError, unknown_name

Params = Any
"""A pytree of float32 arrays, updated by the optimiser."""
Batch = dict[str, Array]
Metrics = dict[str, Scalar]
LossFn = Callable[[Params, Batch, Key[Array, ""]], tuple[Scalar, Metrics]]
"""From parameters, a batch and a dropout key to the mean loss over the batch and further means to log."""


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


class TrainState(NamedTuple):
    """Parameters, optimiser state and number of steps taken; the recipe determines everything else of a run."""

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState


def data_mesh(batch_size: int, accumulate: int = 1) -> Mesh:
    """A mesh with one axis, `data`, over all devices of all processes.

    Raises:
      InputError: The batch cannot be divided evenly among the devices.
    """
    devices = np.asarray(jax.devices())
    if batch_size % (devices.size * accumulate):
        raise InputError(
            f"batch_size {batch_size} is not a multiple of {devices.size} devices × {accumulate} accumulated parts."
        )
    return Mesh(devices, ("data",))


def create_state(params: Params, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """The initial state, replicated on every device of the mesh.

    Args:
      params: Initial parameters; copied, because the training step donates its input buffers.
      optimizer: Initialises the optimiser state.
      mesh: From `data_mesh`.
    """
    everywhere = NamedSharding(mesh, PartitionSpec())
    make = jax.jit(
        lambda p: TrainState(jnp.zeros((), jnp.int32), p, optimizer.init(p)), out_shardings=everywhere, keep_unused=True
    )
    return make(jax.tree.map(np.asarray, params))


def place_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Shards this process's rows of a batch over its devices; all processes together hold the global batch."""
    by_row = NamedSharding(mesh, PartitionSpec("data"))
    return {name: jax.make_array_from_process_local_data(by_row, array) for name, array in batch.items()}


StepFn = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def make_step(
    loss_fn: LossFn,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    mesh: Mesh,
    *,
    seed: int = 0,
    accumulate: int = 1,
    frozen: Params | None = None,
) -> StepFn:
    """Compiles the training step.

    The state is replicated and donated; the batch is sharded over the mesh, and the loss is that of the global batch.
    Dropout depends on the seed and the step only, not on the devices.

    Args:
      loss_fn: The objective. With `accumulate` above 1 it is called with one part of the batch at a time.
      optimizer, mesh: From `make_optimizer` and `data_mesh`.
      schedule: Learning rate by step, to be logged.
      seed: Seed of the dropout noise.
      accumulate: Parts each batch is split into; their gradients are averaged, which saves memory and takes time.
      frozen: Arrays the loss finds as `params["frozen"]`: neither trained nor in a checkpoint, and not constants of
        the compiled program.

    Returns:
      `(state, batch) -> (state, metrics)`, where metrics hold `loss`, `learning_rate`, `grad_norm` and the means that
      `loss_fn` returns.
    """
    everywhere, by_row = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))

    def mean_gradient(params: Params, batch: Batch, key: Key[Array, ""], frozen: Params | None) -> Any:
        def loss(params: Params, batch: Batch, key: Key[Array, ""]) -> tuple[Scalar, Metrics]:
            return loss_fn(params if frozen is None else {**params, "frozen": frozen}, batch, key)

        gradient = jax.value_and_grad(loss, has_aux=True)
        if accumulate == 1:
            return gradient(params, batch, key)
        # Part i holds rows i, i + accumulate, ..., so that no row moves to another device.
        parts = jax.tree.map(lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch)
        keys = jax.random.split(key, accumulate)
        shapes = jax.eval_shape(gradient, params, jax.tree.map(lambda x: x[0], parts), key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, gradient(params, *part)), None

        total, _ = jax.lax.scan(add, zeros, (parts, keys))
        return jax.tree.map(lambda x: x / accumulate, total)

    def step(state: TrainState, batch: Batch, frozen: Params | None = None) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(seed), state.step)
        (loss, metrics), gradients = mean_gradient(state.params, batch, key, frozen)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        metrics |= {
            "loss": loss,
            "learning_rate": jnp.asarray(schedule(state.step), jnp.float32),
            "grad_norm": optax.global_norm(gradients),
        }
        return TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state), metrics

    compiled = functools.partial(jax.jit, donate_argnums=0, out_shardings=(everywhere, everywhere))
    if frozen is None:
        return compiled(step, in_shardings=(everywhere, by_row))
    placed = jax.jit(lambda x: x, out_shardings=everywhere)(jax.tree.map(np.asarray, frozen))
    with_frozen = compiled(step, in_shardings=(everywhere, by_row, everywhere))
    return lambda state, batch: with_frozen(state, batch, placed)
