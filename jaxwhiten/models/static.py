"""Static encoders: one fixed vector per token of the vocabulary, independent of its context.

sentence-transformers (StaticEmbedding) and model2vec read a folder of one; both average the vectors of a sentence.
"""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from jaxwhiten.errors import ModelError
from jaxwhiten.models import checkpoint
from jaxwhiten.models.config import MOST_POSITIONS, EncoderConfig
from jaxwhiten.models.layers import EncoderOutput
from jaxwhiten.models.transformer import TransformerEncoder
from jaxwhiten.types import AnyArray, Float, Int

_TABLES = ("embeddings", "embedding.weight")  # model2vec's tensor, and sentence-transformers'


class StaticEncoder(TransformerEncoder):
    """A table of token vectors as an encoder without layers; its hidden states are the rows of the tokens.

    >>> StaticEncoder(np.ones((10, 4), np.float32)).config.hidden_size
    4
    """

    module = checkpoint.STATIC
    pools = True
    special_tokens = False

    def __init__(self, table: Float[np.ndarray, "vocab d"], dtype: DTypeLike = jnp.float32):
        rows, width = table.shape
        self.config = EncoderConfig(
            model_type="static",
            vocab_size=rows,
            hidden_size=width,
            num_layers=1,
            num_heads=1,
            intermediate_size=1,
            max_positions=MOST_POSITIONS,
            type_vocab_size=0,
            pooler=False,
            learned_positions=False,
        )
        self.dtype = dtype
        self.embedding = nnx.Param(jnp.asarray(table, jnp.float32))

    def __call__(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Int[AnyArray, "batch length"],
        *_: object,
        **__: object,
    ) -> EncoderOutput:
        """The rows of the tokens, as embedding output and as last hidden state.

        A row of zeros belongs to a token without weight. It gets no gradient, so that training keeps it zero.
        """
        x = self.embedding[...].astype(self.dtype)[input_ids]
        x = jnp.where(jnp.any(x != 0, axis=-1, keepdims=True), x, 0)
        return EncoderOutput((x, x), None)


def load_static(folder: Path, dtype: DTypeLike) -> StaticEncoder:
    """Reads the table of a folder of sentence-transformers or model2vec; ModelError if it cannot be read."""
    tensors, where = checkpoint.open_weights(folder)
    name = next((name for name in _TABLES if name in tensors), None)
    if name is None or tensors[name].ndim != 2:
        raise ModelError(f"{where}: no table of token vectors; expected {' or '.join(_TABLES)}.")
    table = checkpoint.read_tensor(tensors, name, tensors[name].shape, where)
    if "mapping" in tensors:  # model2vec has quantized the vocabulary
        rows = tensors["mapping"]
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not ((rows >= 0) & (rows < len(table))).all():
            raise ModelError(f"{where}: 'mapping' is not a list of row numbers below {len(table)}.")
        table = table[rows]
    if "weights" in tensors:
        table = table * checkpoint.read_tensor(tensors, "weights", (len(table),), where)[:, None]
    return StaticEncoder(table, dtype)


def save_static(model: StaticEncoder, folder: str | Path, *, unit_length: bool, max_length: int, dtype: str) -> None:
    """Writes `config.json` and `model.safetensors` as model2vec does, with the table in `"float32"` or `"float16"`.

    `unit_length` is whether model2vec scales its vectors to unit length.
    """
    table = np.asarray(model.embedding[...]).astype(dtype)
    raw = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": table.shape[1]}
    raw |= {"normalize": unit_length, "embedding_dtype": dtype}
    raw |= {"max_length": max_length} if max_length < model.config.longest_input else {}
    checkpoint.save_folder(folder, raw, {_TABLES[0]: np.ascontiguousarray(table)}, dtype)
