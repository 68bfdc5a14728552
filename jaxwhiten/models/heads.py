"""Encoders with a head: masked language models and classifiers of sentence pairs, and their files.

Families name the tensors of a head differently (`MaskedForm`, `PairForm`). The masked head is a dense layer, an
activation and a layer norm, followed by the product with the tied word embeddings and a bias per token.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", sections 3.1
  (masked language models) and 4.1 (sentence pairs).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from jaxwhiten.errors import ModelError
from jaxwhiten.models import checkpoint
from jaxwhiten.models.config import EncoderConfig, check_supported
from jaxwhiten.models.folders import naming, read_json
from jaxwhiten.models.layers import EncoderOutput, activation, layer_norm, linear, matmul_precision
from jaxwhiten.models.loading import load_head, load_model, save_with_head
from jaxwhiten.models.packing import Segments
from jaxwhiten.models.registry import head_form
from jaxwhiten.models.transformer import TransformerEncoder
from jaxwhiten.shapes import Array, Float, Int
from jaxwhiten.typing import Fields

_HEAD = nnx.Any(nnx.PathContains("dense"), nnx.PathContains("classifier"))


class MaskedHead(nnx.Module):
    """From hidden states to one logit per token of the vocabulary.

    >>> load_masked_lm("jaxwhiten-tiny")[0].head.bias.shape
    (10000,)
    """

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        form = head_form(config, "masked")
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
    """An encoder of any family with a masked language modelling head, whose initial weights come from `rngs`.

    >>> model, ids = load_masked_lm("jaxwhiten-tiny")[0], jnp.array([[2, 9, 3]])
    >>> model(ids, jnp.ones_like(ids), jnp.array([[1]])).shape[:2]
    (1, 1)
    """

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

    >>> load_masked_lm("jaxwhiten-tiny")[2]
    True

    Returns:
      The model, its folder, and whether the head was loaded.
    """
    encoder, config, folder = load_model(model, dtype=dtype, revision=revision, remat=remat)
    encoder.pooler = None  # not trained by masked language modelling
    encoder.config = dataclasses.replace(config, pooler=False)
    masked = MaskedLM(encoder, rngs=nnx.Rngs(seed))
    form = head_form(config, "masked")
    file = folder / "config.json"
    if f"{form.dense}.weight" not in checkpoint.open_weights(folder)[0]:
        return masked, folder, False
    raw = read_json(file)
    with naming(file):
        check_supported(raw, form.supported)
    load_head(masked.head, nnx.Param, form, config, folder)
    return masked, folder, True


def save_masked_lm(model: MaskedLM, folder: str | Path, *, dtype: str = "float32") -> None:
    """Writes `config.json` and `model.safetensors` in the layout of transformers' `...ForMaskedLM`.

    `load_model` and `Encoder.from_pretrained` load the encoder from the same folder. Args as for `save_model`.

    >>> save_masked_lm(load_masked_lm("jaxwhiten-tiny")[0], "masked")
    """
    form = head_form(model.config, "masked")
    head = nnx.state(model.head, nnx.Param)
    save_with_head(model.encoder, folder, "ForMaskedLM", head, form, {"tie_word_embeddings": True}, dtype)


class PairClassifier(nnx.Module):
    """An encoder with a classifier of `labels` logits; its pooler is made or removed as the family's head requires.

    >>> load_pair_classifier("jaxwhiten-tiny", labels=3)[0].labels
    3
    """

    special_tokens = True

    def __init__(self, encoder: TransformerEncoder, labels: int, *, rngs: nnx.Rngs):
        config = encoder.config
        dtype = encoder.dtype
        width = encoder.config.hidden_size
        form = head_form(config, "pairs")
        if form.dense or encoder.pooler is None:
            encoder.pooler = nnx.data(None if form.dense else linear(width, width, config, dtype, rngs))
        encoder.config = self.config = dataclasses.replace(config, pooler=not form.dense)
        self.encoder = encoder
        self.dtype = dtype
        self.labels = labels
        self.activation = activation(form.activation)
        self.dropout = nnx.Dropout(config.dropout)
        self.dense = linear(width, width, config, dtype, rngs) if form.dense else None
        self.classifier = linear(width, labels, config, dtype, rngs)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        attention_mask: Int[Array, "batch length"],
        *,
        deterministic: bool = True,
        rngs: nnx.Rngs | None = None,
        segments: Segments | None = None,
        **layout: Any,
    ) -> EncoderOutput:
        """The encoder's output, with the logits [..., labels] as the pooler output.

        Args as for `TransformerEncoder.__call__`, except that `input_ids` come from `BulkTokenizer.pairs`: a token id
        plus `vocab_size` times its token type.
        """
        types, ids = jnp.divmod(input_ids, self.config.vocab_size)
        typed = types if self.config.type_vocab_size > 1 else None
        output = self.encoder(
            ids, attention_mask, typed, segments=segments, deterministic=deterministic, rngs=rngs, **layout
        )
        x = output.pooler
        if self.dense is not None:
            last = output.hidden_states[-1]
            x = last[:, 0] if segments is None else segments.firsts(last)
            x = self.activation(self.dense(self.dropout(x, deterministic=deterministic, rngs=rngs)))
        return output._replace(pooler=self.classifier(self.dropout(x, deterministic=deterministic, rngs=rngs)))


def load_pair_classifier(
    model: str | Path, labels: int = 0, *, seed: int = 0, **reading: Any
) -> tuple[PairClassifier, Path]:
    """Loads a classifier of pairs and its folder as `load_model` does, or adds a new head to an encoder.

    A new head, drawn by `seed`, is made if the folder's head has another number of `labels`; 0 takes the folder's.

    >>> load_pair_classifier("cross")[0].labels
    1
    """
    encoder, config, folder = load_model(model, **reading)
    form = head_form(config, "pairs")
    tensors, where = checkpoint.open_weights(folder)
    (stored, *_), _ = tensors.get(f"{form.classifier}.weight", ((0,), None))
    stored = 0 if not form.dense and encoder.pooler is None else stored
    classifier = PairClassifier(encoder, labels or stored, rngs=nnx.Rngs(seed))
    if stored != classifier.labels:
        return classifier, folder
    if not stored:
        raise ModelError(
            f"{where}: contains no classifier of sentence pairs: train one with `python -m train.cross`, or specify"
            " the folder of a sentence-transformers CrossEncoder."
        )
    load_head(classifier, _HEAD, form, config, folder)
    return classifier, folder


def save_pair_classifier(
    model: PairClassifier, folder: str | Path, names: Sequence[str], more: Fields, dtype: str = "float32"
) -> None:
    """Writes `config.json` and `model.safetensors` in the layout of transformers' `...ForSequenceClassification`.

    `names` are the labels', and `more` further keys of `config.json`; other arguments are as in `save_model`.

    >>> save_pair_classifier(load_pair_classifier("cross")[0], "pairs", ["score"], {})
    """
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    head = nnx.state(model, _HEAD)
    form = head_form(model.config, "pairs")
    save_with_head(model.encoder, folder, "ForSequenceClassification", head, form, {**labels, **more}, dtype)
