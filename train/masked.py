"""Masked language models: an encoder of any family with a head that restores tokens, and their files.

The head is a dense layer, an activation and a layer norm, followed by the product with the tied word embeddings and a
bias per token.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", section 3.1.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from jaxwhiten import io
from jaxwhiten.errors import ModelError
from jaxwhiten.models import EncoderConfig, TransformerEncoder, checkpoint, linear, load_model
from jaxwhiten.models.config import check_supported
from jaxwhiten.models.folders import naming
from jaxwhiten.models.layers import activation, layer_norm, matmul_precision
from jaxwhiten.models.loading import load_head, save_with_head


class Form(NamedTuple):
    """The head of a family: prefixes of its tensors, and how it differs from BERT's."""

    dense: str
    norm: str
    output: tuple[str, ...]  # of the output bias; checkpoints use several: all are read, the first is written
    activation: str = ""  # "" for the encoder's
    epsilon: float = 0.0  # of the layer norm; 0 for the encoder's
    dense_bias: bool = True
    supported: tuple[tuple[str, Any], ...] = ()  # keys of `config.json`, each with its only supported value

    @property
    def names(self) -> dict[str, Any]:
        return {"dense": self.dense, "norm": self.norm, "": self.output}


_CLS = "cls.predictions"
_BERT = Form(f"{_CLS}.transform.dense", f"{_CLS}.transform.LayerNorm", (_CLS, f"{_CLS}.decoder"))
_ROBERTA = Form("lm_head.dense", "lm_head.layer_norm", ("lm_head", "lm_head.decoder"), "gelu")
_MODERNBERT = (("classifier_bias", False), ("classifier_activation", "gelu"), ("decoder_bias", True))
FORMS = {
    "bert": _BERT,
    **dict.fromkeys(("roberta", "xlm-roberta", "mpnet", "jina_embeddings_v3"), _ROBERTA),
    "electra": Form(
        "generator_predictions.dense", "generator_predictions.LayerNorm", ("generator_lm_head",), activation="gelu"
    ),
    "distilbert": Form("vocab_transform", "vocab_layer_norm", ("vocab_projector",), epsilon=1e-12),
    "albert": Form("predictions.dense", "predictions.LayerNorm", ("predictions", "predictions.decoder")),
    "modernbert": Form("head.dense", "head.norm", ("decoder",), "gelu", dense_bias=False, supported=_MODERNBERT),
    "nomic_bert": _BERT._replace(norm=f"{_CLS}.transform.layer_norm"),
    "gte": Form("lm_head.dense", "lm_head.norm", ("lm_head.decoder",), "gelu"),
}
"""The heads by the family's `model_type`."""


def form_of(config: EncoderConfig) -> Form:
    """The family's head; ModelError if it has none."""
    if config.model_type not in FORMS:
        raise ModelError(f"{config.model_type}: this family has no masked language models; use {', '.join(FORMS)}.")
    return FORMS[config.model_type]


class MaskedHead(nnx.Module):
    """From hidden states to one logit per token of the vocabulary."""

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        form = form_of(config)
        eps = form.epsilon or config.layer_norm_eps
        self.dtype = dtype
        self.activation = activation(form.activation or config.hidden_act)
        self.dense = linear(config.hidden_size, config.embedding_size, config, dtype, rngs, form.dense_bias)
        self.norm = layer_norm(config.embedding_size, dataclasses.replace(config, layer_norm_eps=eps), dtype, rngs)
        self.bias = nnx.Param(jnp.zeros(config.vocab_size))

    def __call__(
        self, hidden: Float[Array, "batch positions d"], words: Float[Array, "vocab width"]
    ) -> Float[Array, "batch positions vocab"]:
        """Logits in float32, from the last hidden states at the positions to predict."""
        x = self.norm(self.activation(self.dense(hidden)))
        logits = jnp.einsum(
            "bpd,vd->bpv",
            x,
            words.astype(self.dtype),
            precision=matmul_precision(self.dtype),
            preferred_element_type=jnp.float32,
        )
        return logits + self.bias[...]


class MaskedLM(nnx.Module):
    """An encoder of any family with a masked language modelling head, whose initial weights come from `rngs`."""

    def __init__(self, encoder: TransformerEncoder, *, rngs: nnx.Rngs):
        self.encoder = encoder
        self.head = MaskedHead(encoder.config, dtype=encoder.dtype, rngs=rngs)

    @property
    def config(self) -> EncoderConfig:
        """Configuration of the encoder."""
        return self.encoder.config

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        attention_mask: Int[Array, "batch length"],
        positions: Int[Array, "batch positions"],
        *,
        deterministic: bool = True,
        rngs: nnx.Rngs | None = None,
    ) -> Float[Array, "batch positions vocab"]:
        """Logits over the vocabulary at the positions to predict in each row."""
        output = self.encoder(input_ids, attention_mask, deterministic=deterministic, rngs=rngs)
        chosen = jnp.take_along_axis(output.hidden_states[-1], positions[:, :, None], axis=1)
        return self.head(chosen, jnp.asarray(self.encoder.embeddings.word.embedding[...]))


def load_masked_lm(
    model: str | Path, *, seed: int = 0, dtype: str = "float32", revision: str | None = None, remat: bool = False
) -> tuple[MaskedLM, Path, bool]:
    """Loads an encoder and, if the checkpoint has one, its masked language modelling head.

    Args as for `load_model`; `seed` is for the head's weights if the checkpoint has none.

    Returns:
      The model, its folder, and whether the head was loaded.
    """
    encoder, config, folder = load_model(model, dtype=dtype, revision=revision, remat=remat)
    encoder.pooler = None  # not trained by masked language modelling
    encoder.config = dataclasses.replace(config, pooler=False)
    masked = MaskedLM(encoder, rngs=nnx.Rngs(seed))
    form = form_of(config)
    file = folder / "config.json"
    if f"{form.dense}.weight" not in checkpoint.open_weights(folder)[0]:
        return masked, folder, False
    raw = io.read_json(file, dict, error=ModelError)
    with naming(file):
        check_supported(raw, dict(form.supported))
    load_head(masked.head, nnx.Param, form.names, config, folder)
    return masked, folder, True


def save_masked_lm(model: MaskedLM, folder: str | Path, *, dtype: str = "float32") -> None:
    """Writes `config.json` and `model.safetensors` in the layout of transformers' `...ForMaskedLM`.

    `load_model` and `Encoder.from_pretrained` load the encoder from the same folder. Args as for `save_model`.
    """
    form = form_of(model.config)
    head = nnx.state(model.head, nnx.Param)
    save_with_head(model.encoder, folder, "ForMaskedLM", head, form.names, {"tie_word_embeddings": True}, dtype)
