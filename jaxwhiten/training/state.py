"""The training state and its placement on the devices."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int

from jaxwhiten.errors import InputError

Params = Any
"""A pytree of float32 arrays, updated by the optimiser."""


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
