"""BERT-flow: a Glow fitted to sentence vectors by maximum likelihood; its latents are the new vectors."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float32

from jaxwhiten.arrays import as_matrix, block_rows, blocks, check_finite, one_ahead, pad_rows, row_bucket
from jaxwhiten.errors import Bounds, InputError, check_integer, optional
from jaxwhiten.whitening.estimator import Estimator, parameters, stamp

_INIT_ROWS = 1024  # rows that initialize the actnorms
_CHUNK_STEPS = 64  # batches sent to the device at once; always as many, so that other data compiles no new program


class FlowState(NamedTuple):
    """Levels, depth and width; parameters; the optimizer's state; the loss of every step in bits per dimension."""

    sizes: tuple[int, int, int]
    params: Any
    opt_state: Any
    losses: np.ndarray


@functools.lru_cache(maxsize=16)
def _functions(d: int, levels: int, depth: int, width: int, learning_rate: float) -> SimpleNamespace:
    """The compiled functions of one architecture."""
    optax = optional("optax", "train", "BERT-flow")
    from flax import nnx

    from eval.methods.glow import Glow

    def create(seed: int) -> Any:
        return nnx.state(Glow(d, levels, depth, width, np.random.default_rng(seed)))

    graph = nnx.graphdef(nnx.eval_shape(lambda: Glow(d, levels, depth, width, np.random.default_rng(0))))
    optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate, eps=1e-6)))

    def initialize(params: Any, x: jax.Array) -> Any:
        model = nnx.merge(graph, params)
        model(x, initialize=True)
        return nnx.state(model)

    def bits_per_dimension(params: Any, x: jax.Array) -> jax.Array:
        return -nnx.merge(graph, params).log_likelihood(x).mean() / (d * jnp.log(2.0))

    def train(params: Any, opt_state: Any, rows: jax.Array, steps: jax.Array) -> tuple[Any, Any, jax.Array]:
        """Trains on the first `steps` of the batches `rows` [s, b, d]."""

        def step(i: jax.Array, carry: tuple[Any, Any, jax.Array]) -> tuple[Any, Any, jax.Array]:
            params, opt_state, losses = carry
            loss, gradient = jax.value_and_grad(bits_per_dimension)(params, rows[i])
            updates, opt_state = optimizer.update(gradient, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, losses.at[i].set(loss)

        return lax.fori_loop(0, steps, step, (params, opt_state, jnp.zeros(len(rows))))

    return SimpleNamespace(
        create=create,
        initialize=jax.jit(initialize),
        start=jax.jit(optimizer.init),
        train=jax.jit(train),
        forward=jax.jit(lambda params, x: nnx.merge(graph, params)(x)),
    )


@parameters
class BertFlow(Estimator):
    """BERT-flow, with the flow of its release: additive couplings, actnorms, reversing permutations, split levels.

    Adam with a constant learning rate, and gradients clipped to norm 1, minimizes the mean negative log-likelihood in
    bits per dimension. Two things differ from the release: up to 1,024 rows instead of one batch initialize the
    actnorms, and there is no weight decay. Rows that do not fill the last batch of an epoch are dropped. Vectors are
    float32 for every input dtype.

    The default sizes are those of the released `l2_d3_w16`, whose file holds width 32. Needs Optax.

    Args:
      levels: Levels of the flow; half of the dimensions leave after each level except the last.
      depth: Steps per level.
      width: Hidden width of the couplings.
      learning_rate: Learning rate of Adam.
      epochs: Passes over the rows.
      batch_size: Rows per step; the release takes 32 pairs.
      seed: Seed of the couplings and of the order of the rows.

    References:
      Li, Zhou, He, Wang, Yang, Li: On the Sentence Embeddings from Pre-trained Language Models (2020), section 3.
    """

    name = "bert-flow"

    levels: int = 2
    depth: int = 3
    width: int = 32
    learning_rate: float = 1e-3
    epochs: int = 1
    batch_size: int = 64
    seed: int = 0

    def _check_params(self, d: int) -> None:
        for name, least in {"levels": 1, "depth": 1, "width": 1, "epochs": 0, "batch_size": 1, "seed": 0}.items():
            check_integer(name, getattr(self, name), least)
        if not Bounds(0.0, above=True).hold(self.learning_rate):
            raise InputError(f"learning_rate must be a number above 0, got {self.learning_rate!r}.")
        if self.levels > (max_levels := d.bit_length() - 1):  # compared in logarithms: 2^levels may be huge
            raise InputError(f"{d} columns can be halved on {max_levels} levels at most, not {self.levels}.")

    def _compiled(self, d: int, sizes: tuple[int, int, int]) -> SimpleNamespace:
        return _functions(d, *sizes, float(self.learning_rate))

    def fit(self, X: Any, y: Any = None) -> BertFlow:
        """Learns from [n, d] rows and forgets earlier ones; `y` is ignored.

        Raises:
          NonFiniteError: A row holds NaN or an infinity. The message names the row; nothing is changed.
        """
        started = time.perf_counter()
        X = as_matrix(X, type(self).__name__, min_rows=1)
        self._check_params(X.shape[1])
        self._state = self._learn(X)
        return self._fitted_on(len(X), X.shape[1], stamp(time.perf_counter() - started))

    def _learn(self, X: np.ndarray) -> FlowState:
        check_finite(X)
        sizes = (int(self.levels), int(self.depth), int(self.width))
        functions = self._compiled(X.shape[1], sizes)
        rng = np.random.default_rng([self.seed, 0])
        first = np.sort(rng.permutation(len(X))[:_INIT_ROWS])
        params = functions.initialize(functions.create(self.seed), X[first].astype(np.float32))
        opt_state = functions.start(params)
        chunks = [np.zeros(0, np.float32)]
        for rows, steps in self._chunks(X, rng):
            params, opt_state, bits = functions.train(params, opt_state, rows, steps)
            chunks.append(np.asarray(bits)[:steps])
        losses = np.concatenate(chunks)
        if not np.isfinite(losses).all():
            raise InputError(
                f"The likelihood is not finite at step {int(np.argmin(np.isfinite(losses)))}: take a smaller "
                f"learning_rate than {self.learning_rate}, or scale the input. Nothing was changed."
            )
        return FlowState(sizes, params, opt_state, losses)

    def _chunks(self, X: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, int]]:
        """The batches of all epochs, several at a time as [s, b, d] of one shape, and how many of them count."""
        size = min(self.batch_size, len(X))
        batches = len(X) // size
        for _ in range(self.epochs):
            order = rng.permutation(len(X))
            for start in range(0, batches, _CHUNK_STEPS):
                steps = min(_CHUNK_STEPS, batches - start)
                chunk = np.zeros((_CHUNK_STEPS, size, X.shape[1]), np.float32)
                rows = order[start * size : (start + steps) * size]
                chunk[:steps] = X[rows].reshape(steps, size, X.shape[1])
                yield chunk, steps

    @property
    def flow_(self) -> FlowState:
        """What was learned."""
        return self._state

    @property
    def losses_(self) -> Float32[np.ndarray, " steps"]:
        """Bits per dimension of every step."""
        return self._state.losses

    def _apply(self, X: np.ndarray) -> np.ndarray:
        check_finite(X)
        state: FlowState = self._state
        forward = self._compiled(X.shape[1], state.sizes).forward
        full = block_rows(X.shape[1], 4)

        def dispatch(part: slice) -> tuple[int, jax.Array]:
            block = X[part].astype(np.float32)
            return len(block), forward(state.params, pad_rows(block, row_bucket(len(block), full)))

        # an empty input has a result of k columns, too
        parts = blocks(len(X), full) if len(X) else [slice(0, 0)]
        return np.concatenate([np.asarray(values)[:n] for n, values in one_ahead(map(dispatch, parts))])
