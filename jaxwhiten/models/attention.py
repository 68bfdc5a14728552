"""Attention by a kernel, where there is one that reads less than matrix products do: for long rows on TPUs.

Plain attention (`layers.SelfAttention`) writes [batch, heads, length, length] scores to memory; a kernel does not, and
cannot give the attention maps. Its products are bfloat16's, so float32 models keep plain attention.

References:
  Dao et al. 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness". The kernel is JAX's
  splash attention for TPUs.
"""

from __future__ import annotations

import dataclasses
import math

import jax
from jaxtyping import Array, Float, Int

BLOCK = 128  # what lengths have to be a multiple of; at this length plain attention reads less


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Splash:
    """JAX's splash attention within segments.

    Attributes:
      window: Distance to either side that attention reaches; 0 for everywhere.
      interpret: Whether to run it on a device that is no TPU, slowly.
    """

    window: int = 0
    interpret: bool = False

    def __call__(
        self,
        query: Float[Array, "rows heads length head"],
        key: Float[Array, "rows heads length head"],
        value: Float[Array, "rows heads length head"],
        segment: Int[Array, "rows length"],
    ) -> Float[Array, "rows heads length head"]:
        """The mixed values of each head; tokens attend to those of the same segment."""
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

        _, heads, length, head = query.shape
        shape, reach = (length, length), (self.window, self.window)
        mask = masks.LocalMask(shape, reach, 0) if self.window else masks.FullMask(shape)
        every = masks.MultiHeadMask([mask] * heads)
        attend = splash.make_splash_mha(every, head_shards=1, q_seq_shards=1, interpret=self.interpret)

        def of_row(query: Array, key: Array, value: Array, segment: Array) -> Array:
            return attend(query, key, value, segment_ids=splash.SegmentIds(segment, segment))

        return jax.vmap(of_row)(query / math.sqrt(head), key, value, segment)


def kernel_for(platform: str, dtype: str) -> Splash | None:
    """The kernel for a platform's devices and a dtype of matrix products; None where plain attention serves."""
    return Splash() if platform == "tpu" and dtype == "bfloat16" else None
