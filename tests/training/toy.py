"""A regression that trains in milliseconds, for tests of the loop itself."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxwhiten.options import TrainingOptions
from jaxwhiten.training.batches import Batches

WIDTH, ROWS, BATCH = 6, 96, 16


def params():
    return {"kernel": jnp.zeros((WIDTH, 1)), "bias": jnp.zeros(1)}


def batches(seed=0):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    y = (x @ rng.normal(size=(WIDTH, 1)) + 0.7).astype(np.float32)

    def collate(rows, length, rng):
        del length, rng
        return {"x": x[rows], "y": y[rows]}

    return Batches(np.ones(ROWS, np.int64), collate, batch_size=BATCH, ladder=np.array([1]), seed=seed)


def loss_fn(params, batch, key):
    """Squared error under noise on the inputs, so that the key matters."""
    x = batch["x"] + 0.1 * jax.random.normal(key, batch["x"].shape)
    error = (x @ params["kernel"] + params["bias"] - batch["y"]) ** 2
    return jnp.mean(error), {"worst": jnp.max(error)}


def how(steps=40, **changes):
    return TrainingOptions(
        **{"steps": steps, "batch_size": BATCH, "learning_rate": 0.1, "weight_decay": 0.0, **changes}
    )


def evaluate(params):
    """Closeness to the true bias, in points."""
    return {"toy dev": 100 - 100 * abs(float(params["bias"][0]) - 0.7)}
