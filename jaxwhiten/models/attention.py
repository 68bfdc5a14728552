"""Attention that does not write all scores to memory: by a kernel on TPUs and GPUs, by blocks of queries on CPUs.

Plain attention (`layers.SelfAttention`) writes [batch, heads, length, length] scores to memory. A kernel does not, and
so cannot return attention maps. Its products are in bfloat16, so float32 models keep plain attention.

References:
  Dao et al. 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness". The kernels are JAX's
  splash attention for TPUs, and cuDNN's fused attention for GPUs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from jaxwhiten.models.positions import visible
from jaxwhiten.types import Array, Bool, Float, Int

BLOCK = 128  # lengths must be a multiple of it; at this length plain attention reads less

# Scores that stay in a CPU's cache while they are made, scaled and multiplied. Compared with all scores at once this
# takes half of the time at 512 tokens and 0.4 of it at 2,048, and memory grows linearly with the length.
_SCORES = 3 << 19
_STEP = 16

Heads = Float[Array, "rows heads length head"]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Splash:
    """JAX's splash attention within segments; `window` and `causal` are as in `config.Attention`."""

    window: int | None = None
    causal: bool = False
    interpret: bool = False  # whether to run it, slowly, on a device that is no TPU

    def __call__(self, query: Heads, key: Heads, value: Heads, segment: Int[Array, "rows length"]) -> Heads:
        """The attended values of each head; tokens attend only to tokens of the same segment."""
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

        _, heads, length, head = query.shape
        shape = (length, length)
        reach = (self.window, 0 if self.causal else self.window)
        mask = masks.FullMask(shape) if reach == (None, None) else masks.LocalMask(shape, reach, 0)
        every = masks.MultiHeadMask([mask] * heads)
        attend = splash.make_splash_mha(every, head_shards=1, q_seq_shards=1, interpret=self.interpret)

        def of_row(query: Array, key: Array, value: Array, segment: Array) -> Array:
            return attend(query, key, value, segment_ids=splash.SegmentIds(segment, segment))

        return jax.vmap(of_row)(query / math.sqrt(head), key, value, segment)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Fused:
    """JAX's dot-product attention within segments, by cuDNN, which takes a mask and writes no attention maps."""

    window: int | None = None
    causal: bool = False
    implementation: Literal["cudnn", "xla"] = "cudnn"  # or plain products on any device

    def __call__(self, query: Heads, key: Heads, value: Heads, segment: Int[Array, "rows length"]) -> Heads:
        """As in `Splash`."""
        mask = segment[:, :, None] == segment[:, None, :]
        if (near := visible(segment.shape[1], self.window, self.causal)) is not None:
            mask &= near
        query, key, value = (y.swapaxes(1, 2) for y in (query, key, value))
        mixed = jax.nn.dot_product_attention(query, key, value, mask=mask[:, None], implementation=self.implementation)
        return mixed.swapaxes(1, 2)

    def runs_on(self, device: jax.Device, dtype: DTypeLike, head: int) -> bool:
        """Whether it compiles for a device: cuDNN may be missing there, or not support the size of the heads."""
        place = jax.sharding.SingleDeviceSharding(device)
        heads = jax.ShapeDtypeStruct((1, 1, 2 * BLOCK, head), dtype, sharding=place)
        segment = jax.ShapeDtypeStruct((1, 2 * BLOCK), "int32", sharding=place)
        try:
            jax.jit(self.__call__).lower(heads, heads, heads, segment).compile()
        except (RuntimeError, ValueError):
            return False
        return True


Kernel = Splash | Fused


def by_queries(
    attend: Callable[..., Heads],
    query: Heads,
    mask: Bool[Array, "rows 1 queries length"],
    bias: Float[Array, "1 heads length length"] | None,
) -> Heads:
    """The attended values; on a CPU computed block by block of queries.

    `attend` computes them for some queries, given their rows of mask and bias.
    """
    rows, heads, length, _ = query.shape
    size = max(_SCORES // (rows * heads * mask.shape[3]) // _STEP, 1) * _STEP
    if size >= length:
        return attend(query, mask, bias)

    def by_blocks(query: Array, mask: Array, bias: Array | None) -> Array:
        def block(first: Array) -> Array:
            def of(y: Array | None) -> Array | None:
                return y if y is None or y.shape[2] == 1 else lax.dynamic_slice_in_dim(y, first, size, axis=2)

            return attend(of(query), of(mask), of(bias))

        starts = jnp.minimum(jnp.arange(0, length, size), length - size)  # the last two may overlap
        mixed = jnp.moveaxis(lax.map(block, starts), 0, 2).reshape(rows, heads, -1, query.shape[3])
        last = (len(starts) - 1) * size
        return jnp.concatenate([mixed[:, :, :last], mixed[:, :, last - length :]], axis=2)

    return lax.platform_dependent(query, mask, bias, cpu=by_blocks, default=attend)


@functools.cache  # probing a device compiles a program
def kernel_for(device: jax.Device, dtype: str, head: int) -> Kernel | None:
    """The kernel for a device, a dtype of matrix products and a size of heads; None if plain attention is used."""
    if dtype != "bfloat16":
        return None
    if device.platform == "tpu":
        return Splash()
    if device.platform == "gpu" and Fused().runs_on(device, dtype, head):
        return Fused()
    return None
