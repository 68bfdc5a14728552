"""One optimiser step as one compiled function: schedule, optimiser, training state and its sharding."""

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
from jaxtyping import Array, Int, Key, Scalar

from jaxwhiten.errors import InputError, check_name

Params = Any
"""A pytree of float32 arrays, updated by the optimiser."""
Batch = dict[str, Array]
Metrics = dict[str, Scalar]
LossFn = Callable[[Params, Batch, Key[Array, ""]], tuple[Scalar, Metrics]]
"""From parameters, a batch and a dropout key to the mean loss over the batch and other means to log."""
Evaluate = Callable[[Params], dict[str, float]]
"""From parameters on the host to scores by name. Every process calls it and computes its share."""


DECAYS: dict[str, Callable[[float, int], optax.Schedule]] = {
    "linear": lambda peak, steps: optax.linear_schedule(peak, 0.0, steps),
    "cosine": optax.cosine_decay_schedule,
    "constant": lambda peak, steps: optax.constant_schedule(peak),
}
OPTIMIZERS = ("adamw", "adam")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimization:
    """The optimisation of a run: number of steps, batch size, learning rates and optimiser.

    References:
      Kingma and Ba, Adam (ICLR 2015), algorithm 1; Loshchilov and Hutter, AdamW (ICLR 2019), algorithm 2.
    """

    steps: int  # in the whole run
    batch_size: int  # rows, over all devices
    learning_rate: float  # the peak; the rate rises to it linearly, then decays towards zero at `steps`
    warmup: float = 0.1  # share of the steps, rounded up to whole ones
    decay: str = "linear"  # of `DECAYS`
    optimizer: str = "adamw"  # of `OPTIMIZERS`, after gradient clipping
    weight_decay: float = 0.01  # decoupled; biases and norms (arrays with one axis) are exempt
    clip_norm: float = 1.0  # maximum global norm of the gradient; 0 disables clipping
    b2: float = 0.999
    eps: float = 1e-8
    accumulate: int = 1  # parts of a batch; their gradients are averaged, which saves memory and costs time
    seed: int = 0  # of the dropout noise

    def __post_init__(self) -> None:
        check_name("decay", self.decay, DECAYS)
        check_name("optimizer", self.optimizer, OPTIMIZERS)
        least = {"learning_rate": 0.0, "batch_size": 1, "accumulate": 1, "weight_decay": 0.0, "clip_norm": 0.0}
        for name, low in least.items():
            value = getattr(self, name)
            if not low <= value < math.inf:  # also false for NaN
                raise InputError(f"{name}={value!r}: expected a finite number of at least {low:g}.")
        if self.steps < 1 or not 0 <= self.warmup < 1:
            raise InputError(
                f"A schedule needs at least one step and a warm-up share in [0, 1): got {self.steps}, {self.warmup}."
            )

    @functools.cached_property
    def schedule(self) -> optax.Schedule:
        """Learning rate by step, counted from 0; with a warm-up the first rate is 0, as in transformers' schedules."""
        rising = math.ceil(self.steps * self.warmup)
        after = DECAYS[self.decay](self.learning_rate, max(self.steps - rising, 1))
        if rising == 0:
            return after
        return optax.join_schedules([optax.linear_schedule(0.0, self.learning_rate, rising), after], [rising])

    @functools.cached_property
    def transformation(self) -> optax.GradientTransformation:
        """Gradient clipping followed by the optimiser."""
        if self.optimizer == "adam":
            rule = optax.adam(self.schedule, b2=self.b2, eps=self.eps)
        else:
            matrices = functools.partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
            rule = optax.adamw(self.schedule, b2=self.b2, eps=self.eps, weight_decay=self.weight_decay, mask=matrices)
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), rule) if self.clip_norm > 0 else rule

    def mesh(self) -> Mesh:
        """A mesh with one axis, `data`, over all devices of all processes; they must divide a batch evenly."""
        devices = np.asarray(jax.devices())
        if self.batch_size % (devices.size * self.accumulate):
            raise InputError(
                f"batch_size {self.batch_size} is not a multiple of {devices.size} devices × {self.accumulate} "
                "accumulated parts."
            )
        return Mesh(devices, ("data",))


class TrainState(NamedTuple):
    """Parameters, optimiser state and number of steps taken; the recipe determines everything else of a run."""

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState


def create_state(params: Params, how: Optimization, mesh: Mesh) -> TrainState:
    """The initial state, replicated on every device of the mesh. It is copied because a step donates its input."""
    everywhere, init = NamedSharding(mesh, PartitionSpec()), how.transformation.init
    make = jax.jit(lambda p: TrainState(jnp.int32(0), p, init(p)), out_shardings=everywhere, keep_unused=True)
    return make(jax.tree.map(np.asarray, params))


def place_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Shards this process's rows of a batch over its devices; all processes together hold the global batch."""
    by_row = NamedSharding(mesh, PartitionSpec("data"))
    return {name: jax.make_array_from_process_local_data(by_row, array) for name, array in batch.items()}


StepFn = functools.partial[tuple[TrainState, Metrics]]  # of a compiled function and its frozen arrays


def make_step(loss_fn: LossFn, how: Optimization, mesh: Mesh, frozen: Params | None = None) -> StepFn:
    """Compiles the training step.

    The state is replicated and donated; the batch is sharded over the mesh, and the loss is computed over the global
    batch. Dropout depends on the seed and the step only, not on the devices. With accumulation, the loss is called with
    one part of the batch at a time, so that in-batch negatives come from that part.
    `params["frozen"]` gives it the `frozen` arrays, which are neither trained nor checkpointed, nor constants of the
    compiled program.

    Returns:
      `(state, batch) -> (state, metrics)`; metrics are `loss`, `learning_rate`, `grad_norm` and the means of `loss_fn`.
    """
    accumulate, optimizer, schedule = how.accumulate, how.transformation, how.schedule
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

    def step(frozen: Params | None, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(how.seed), state.step)
        (loss, metrics), gradients = mean_gradient(state.params, batch, key, frozen)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        metrics |= {
            "loss": loss,
            "learning_rate": jnp.asarray(schedule(state.step), jnp.float32),
            "grad_norm": optax.global_norm(gradients),
        }
        return TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state), metrics

    placed = jax.jit(lambda x: x, out_shardings=everywhere)(jax.tree.map(np.asarray, frozen))
    given, made = (everywhere, everywhere, by_row), (everywhere, everywhere)
    return functools.partial(jax.jit(step, donate_argnums=1, in_shardings=given, out_shardings=made), placed)


def step_memory(step: StepFn, state: TrainState, batch: Batch) -> int:
    """The bytes that a step allocates on each device; compiles the program that steps with such batches then use."""
    compiled: Any = step.func
    sizes = compiled.lower(*step.args, state, batch).compile().memory_analysis()
    return int(sizes.temp_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes)
