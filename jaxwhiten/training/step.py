"""One optimizer step as one compiled function: schedule, optimizer, training state and its sharding."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxwhiten.errors import InputError
from jaxwhiten.options import TrainingOptions
from jaxwhiten.types import Array, Int, Key, Scalar

Params = Any
"""A pytree of float32 arrays, updated by the optimizer."""
Batch = dict[str, Array]
Metrics = dict[str, Scalar]
LossFn = Callable[[Params, Batch, Key[Array, ""]], tuple[Scalar, Metrics]]
"""From parameters, a batch and a dropout key to the mean loss over the batch and other means to log."""
Evaluate = Callable[[Params], dict[str, float]]
"""From parameters on the host to scores by name. Every process calls it and computes its share."""


def schedule(options: TrainingOptions) -> optax.Schedule:
    """Learning rate by step, counted from 0; with a warm-up the first rate is 0, as in transformers' schedules."""
    rising = math.ceil(options.steps * options.warmup)
    peak = options.learning_rate
    falling = max(options.steps - rising, 1)
    decays = {"linear": optax.linear_schedule(peak, 0.0, falling), "cosine": optax.cosine_decay_schedule(peak, falling)}
    after = decays.get(options.decay, optax.constant_schedule(peak))
    if rising:
        return optax.join_schedules([optax.linear_schedule(0.0, peak, rising), after], [rising])
    return after


def transformation(options: TrainingOptions) -> optax.GradientTransformation:
    """Gradient clipping followed by the optimizer, at a learning rate of 1."""
    rule = optax.adam(1.0, b2=options.b2, eps=options.eps)
    if options.optimizer == "adamw":
        matrices = functools.partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
        rule = optax.adamw(1.0, b2=options.b2, eps=options.eps, weight_decay=options.weight_decay, mask=matrices)
    if options.clip_norm > 0:
        return optax.chain(optax.clip_by_global_norm(options.clip_norm), rule)
    return rule


def data_mesh(options: TrainingOptions) -> Mesh:
    """A mesh with one axis, `data`, over all devices of all processes; they must divide a batch evenly.

    >>> data_mesh(TrainingOptions(batch_size=8)).axis_names
    ('data',)
    """
    devices = np.asarray(jax.devices())
    if options.batch_size % (devices.size * options.accumulate):
        raise InputError(
            f"batch_size {options.batch_size} is not a multiple of {devices.size} devices × {options.accumulate} "
            "accumulation steps."
        )
    return Mesh(devices, ("data",))


class TrainState(NamedTuple):
    """Parameters, optimizer state and number of steps taken; the recipe determines everything else of a run."""

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState


def create_state(params: Params, options: TrainingOptions, mesh: Mesh) -> TrainState:
    """The initial state, replicated on every device of the mesh. It is copied because a step donates its input.

    >>> options = TrainingOptions(steps=1)
    >>> int(create_state({"w": jnp.zeros(1)}, options, data_mesh(options)).step)
    0
    """
    everywhere = NamedSharding(mesh, PartitionSpec())
    init = transformation(options).init
    make = jax.jit(lambda p: TrainState(jnp.int32(0), p, init(p)), out_shardings=everywhere, keep_unused=True)
    return make(jax.tree.map(np.asarray, params))


def place_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Shards this process's rows of a batch over its devices; all processes together hold the global batch.

    >>> place_batch({"x": np.ones((8, 2))}, data_mesh(TrainingOptions(batch_size=8)))["x"].shape
    (8, 2)
    """
    by_row = NamedSharding(mesh, PartitionSpec("data"))
    return {name: jax.make_array_from_process_local_data(by_row, array) for name, array in batch.items()}


@dataclasses.dataclass(frozen=True)
class StepFn:
    """A training step. Frozen arrays, learning rate and dropout key are arguments of its program, not constants.

    JAX's cache of compiled programs therefore serves runs of any number of steps, learning rate and seed.
    """

    program: Any  # jitted
    frozen: Params
    begin: Callable[[Int[Array, ""]], tuple[Scalar, Key[Array, ""]]]  # learning rate and key of a step

    def __call__(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        stepped: tuple[TrainState, Metrics] = self.program(self.frozen, *self.begin(state.step), state, batch)
        return stepped


def make_step(loss_fn: LossFn, options: TrainingOptions, mesh: Mesh, frozen: Params | None = None) -> StepFn:
    """Compiles the training step.

    The state is replicated and donated; the batch is sharded over the mesh, and the loss is computed over the global
    batch. Dropout depends on the seed and the step only, not on the devices. With accumulation, the loss is called with
    one part of the batch at a time, so that in-batch negatives come from that part.
    `params["frozen"]` gives it the `frozen` arrays, which are neither trained nor checkpointed, nor constants of the
    compiled program.

    >>> def loss(params, batch, key):
    ...     return jnp.mean((batch["x"] - params["w"]) ** 2), {}
    >>> options = TrainingOptions(steps=1, batch_size=8)
    >>> mesh = data_mesh(options)
    >>> state, batch = create_state({"w": jnp.zeros(1)}, options, mesh), place_batch({"x": np.ones(8)}, mesh)
    >>> state, metrics = make_step(loss, options, mesh)(state, batch)
    >>> float(metrics["loss"])
    1.0

    Returns:
      `(state, batch) -> (state, metrics)`; metrics are `loss`, `learning_rate`, `grad_norm` and the means of `loss_fn`.
    """
    accumulate = options.accumulate
    optimizer = transformation(options)
    learning_rate = schedule(options)
    everywhere = NamedSharding(mesh, PartitionSpec())
    by_row = NamedSharding(mesh, PartitionSpec("data"))

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

    def begin(number: Int[Array, ""]) -> tuple[Scalar, Key[Array, ""]]:
        key = jax.random.fold_in(jax.random.key(options.seed), number)
        return jnp.asarray(learning_rate(number), jnp.float32), key

    def step(
        frozen: Params | None, rate: Scalar, key: Key[Array, ""], state: TrainState, batch: Batch
    ) -> tuple[TrainState, Metrics]:
        (loss, metrics), gradients = mean_gradient(state.params, batch, key, frozen)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        updates = jax.tree.map(lambda update: rate * update, updates)
        metrics |= {"loss": loss, "learning_rate": rate, "grad_norm": optax.global_norm(gradients)}
        return TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state), metrics

    placed = jax.jit(lambda x: x, out_shardings=everywhere)(jax.tree.map(np.asarray, frozen))
    inputs = (everywhere, everywhere, everywhere, everywhere, by_row)
    program = jax.jit(step, donate_argnums=3, in_shardings=inputs, out_shardings=(everywhere, everywhere))
    return StepFn(program, placed, jax.jit(begin, out_shardings=everywhere))
