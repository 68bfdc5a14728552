"""Classifiers of sentence pairs, and their files; families name the tensors of the head differently (`PairForm`).

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", section 4.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxwhiten.errors import ModelError
from jaxwhiten.models import checkpoint
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import PairForm
from jaxwhiten.models.folders import FAMILIES
from jaxwhiten.models.layers import EncoderOutput, activation, linear
from jaxwhiten.models.loading import load_head, load_model, save_with_head
from jaxwhiten.models.positions import Segments
from jaxwhiten.models.transformer import TransformerEncoder
from jaxwhiten.types import Array, Fields, Int

_HEAD = nnx.Any(nnx.PathContains("dense"), nnx.PathContains("classifier"))


def pair_form(config: EncoderConfig) -> PairForm:
    """The family's classifiers of sentence pairs; ModelError if it has none."""
    family = FAMILIES.get(config.model_type)
    if family is None or family.pairs is None:
        able = ", ".join(name for name, family in FAMILIES.items() if family.pairs is not None)
        raise ModelError(f"{config.model_type}: this family has no classifiers of sentence pairs; use {able}.")
    return family.pairs


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
        form = pair_form(config)
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
    form = pair_form(config)
    tensors, where = checkpoint.open_weights(folder)
    stored = len(tensors.get(f"{form.classifier}.weight", ()))
    stored = 0 if not form.dense and encoder.pooler is None else stored
    classifier = PairClassifier(encoder, labels or stored, rngs=nnx.Rngs(seed))
    if stored != classifier.labels:
        return classifier, folder
    if not stored:
        raise ModelError(
            f"{where}: contains no classifier of sentence pairs: train one with `python -m train.cross`, or specify"
            " the folder of a sentence-transformers CrossEncoder."
        )
    load_head(classifier, _HEAD, form.names, config, folder)
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
    form = pair_form(model.config)
    save_with_head(model.encoder, folder, "ForSequenceClassification", head, form.names, {**labels, **more}, dtype)
