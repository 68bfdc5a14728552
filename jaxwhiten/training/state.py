"""What a run carries from step to step, and where it lies on the devices."""

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
"""Any tree of float32 arrays: what the optimiser moves."""


class TrainState(NamedTuple):
    """Parameters, optimiser state and the number of steps made; everything else of a run follows from its recipe."""

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState


def data_mesh(batch_size: int, accumulate: int = 1) -> Mesh:
    """One axis, `data`, over every device of every process.

    Raises:
      InputError: The devices cannot share the batch evenly.
    """
    devices = np.asarray(jax.devices())
    if batch_size % (devices.size * accumulate):
        raise InputError(
            f"batch_size {batch_size} is not a multiple of {devices.size} devices × {accumulate} accumulated parts."
        )
    return Mesh(devices, ("data",))


def create_state(params: Params, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """A fresh state, copied to every device of the mesh.

    Args:
      params: Initial parameters; they are copied, since the step gives its input's memory away.
      optimizer: Makes the optimiser's state.
      mesh: From `data_mesh`.
    """
    everywhere = NamedSharding(mesh, PartitionSpec())
    make = jax.jit(
        lambda p: TrainState(jnp.zeros((), jnp.int32), p, optimizer.init(p)), out_shardings=everywhere, keep_unused=True
    )
    return make(jax.tree.map(np.asarray, params))


def place_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Puts this process's rows of a batch on its devices; together the processes form the global batch."""
    by_row = NamedSharding(mesh, PartitionSpec("data"))
    return {name: jax.make_array_from_process_local_data(by_row, array) for name, array in batch.items()}
