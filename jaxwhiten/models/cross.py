"""Classifiers of sentence pairs: an encoder over both sentences of a pair, with a head on the first token.

Families differ in the layer before the classifier and in the names of the head's tensors.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", section 4.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Int

from jaxwhiten.errors import ModelError
from jaxwhiten.models import checkpoint
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import Family, Names
from jaxwhiten.models.layers import EncoderOutput, gelu, linear
from jaxwhiten.models.loading import load_model, read_json
from jaxwhiten.models.packing import Segments
from jaxwhiten.models.registry import FAMILIES
from jaxwhiten.models.transformer import TransformerEncoder


class PairForm(NamedTuple):
    """The head of a family's classifiers: names in its files, and the activation before the classifier."""

    architecture: str
    output: str = "classifier"
    # "": the encoder's own pooler.
    dense: str = ""
    activation: Callable[[Array], Array] = jnp.tanh


_ROBERTA = PairForm("RobertaForSequenceClassification", "classifier.out_proj", "classifier.dense")
PAIR_FORMS: dict[str, PairForm] = {
    "bert": PairForm("BertForSequenceClassification"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA._replace(architecture="XLMRobertaForSequenceClassification"),
    "electra": _ROBERTA._replace(architecture="ElectraForSequenceClassification", activation=gelu),
    "distilbert": PairForm("DistilBertForSequenceClassification", dense="pre_classifier", activation=jax.nn.relu),
    "albert": PairForm("AlbertForSequenceClassification"),
    "mpnet": _ROBERTA._replace(architecture="MPNetForSequenceClassification"),
}


class PairHead(nnx.Module):
    """From the first token to one logit per label."""

    def __init__(self, encoder: TransformerEncoder, labels: int, *, rngs: nnx.Rngs):
        config, form = encoder.config, PAIR_FORMS[encoder.config.model_type]
        self.activation = form.activation
        self.dropout = nnx.Dropout(config.dropout)
        width = config.hidden_size
        self.dense = linear(width, width, config, encoder.dtype, rngs) if form.dense else None
        self.classifier = linear(width, labels, config, encoder.dtype, rngs)

    def __call__(self, x: Array, *, deterministic: bool, rngs: nnx.Rngs | None) -> Array:
        """Logits of pooler outputs, or of first tokens where the head has a dense layer of its own."""
        x = self.dropout(x, deterministic=deterministic, rngs=rngs)
        if self.dense is not None:
            x = self.activation(self.dense(x))
            x = self.dropout(x, deterministic=deterministic, rngs=rngs)
        return self.classifier(x)


class PairClassifier(nnx.Module):
    """An encoder with a classifier, for token ids that say which sentence of the pair a token belongs to.

    Args:
      encoder: An encoder of a family in `PAIR_FORMS`; its pooler is made or removed as the family's head asks for.
      labels: Logits per pair.
      rngs: Source of the head's initial weights.

    Raises:
      ModelError: A family without such classifiers.
    """

    def __init__(self, encoder: TransformerEncoder, labels: int, *, rngs: nnx.Rngs):
        config = encoder.config
        pools = not _form(config.model_type).dense
        if pools and encoder.pooler is None:
            encoder.pooler = linear(config.hidden_size, config.hidden_size, config, encoder.dtype, rngs)
        elif not pools:
            encoder.pooler = None
        encoder.config = dataclasses.replace(config, pooler=pools)
        self.dtype = encoder.dtype
        self.encoder = encoder
        self.head = PairHead(encoder, labels, rngs=rngs)

    @property
    def config(self) -> EncoderConfig:
        """Configuration of the encoder."""
        return self.encoder.config

    @property
    def labels(self) -> int:
        """Logits per pair."""
        return self.head.classifier.out_features

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
        """The encoder's output with the logits, [..., labels], in place of the pooler output.

        Args are those of `TransformerEncoder.__call__`; `input_ids` are those of `jaxwhiten.text.PairTokenizer`: a
        token id plus `vocab_size` times its token type.
        """
        types, ids = jnp.divmod(input_ids, self.config.vocab_size)
        output = self.encoder(
            ids,
            attention_mask,
            types if self.config.type_vocab_size > 1 else None,
            deterministic=deterministic,
            rngs=rngs,
            segments=segments,
            **layout,
        )
        first = output.pooler
        if first is None:
            last = output.hidden_states[-1]
            first = last[:, 0] if segments is None else segments.firsts(last)
        return output._replace(pooler=self.head(first, deterministic=deterministic, rngs=rngs))


def load_pair_classifier(
    model: str | Path, labels: int = 0, *, seed: int = 0, dtype: str = "float32", revision: str | None = None, **kw: Any
) -> tuple[PairClassifier, Path]:
    """Loads a classifier of pairs, or an encoder to be made one.

    Args:
      model, dtype, revision, remat: As in `load_model`.
      labels: Logits per pair of a new head; 0 to read the folder's.
      seed: Of a new head.

    Returns:
      The classifier and its folder.

    Raises:
      ModelError: A file cannot be read, a family without such classifiers, or no head in the folder.
    """
    encoder, config, folder = load_model(model, dtype=dtype, revision=revision, **kw)
    form = _form(config.model_type)
    if labels:
        return PairClassifier(encoder, labels, rngs=nnx.Rngs(seed)), folder
    tensors, where = checkpoint.open_weights(folder)
    weight = tensors.get(f"{form.output}.weight")
    if weight is None or (not form.dense and encoder.pooler is None):
        raise ModelError(
            f"{where}: no classifier of sentence pairs in it; train one with `python -m train.cross`, or name the"
            " folder of a sentence-transformers CrossEncoder."
        )
    classifier = PairClassifier(encoder, weight[0][0], rngs=nnx.Rngs(seed))
    state = nnx.state(classifier.head, nnx.Param)
    values = checkpoint.load_parameters(folder, _head_family(FAMILIES[config.model_type], form), state)
    nnx.replace_by_pure_dict(state, values)
    nnx.update(classifier.head, jax.tree.map(jnp.asarray, state))
    return classifier, folder


def label_names(folder: Path, labels: int) -> tuple[str, ...]:
    """The names of the labels that `config.json` gives, or transformers' for those that it leaves out."""
    names = read_json(folder / "config.json").get("id2label") or {}
    if not isinstance(names, Mapping):
        raise ModelError(f"{folder / 'config.json'}: id2label is {names!r:.80}; expected names by number.")
    return tuple(str(names.get(str(number), f"LABEL_{number}")) for number in range(labels))


def save_pair_classifier(
    model: PairClassifier,
    folder: str | Path,
    names: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
    *,
    dtype: str = "float32",
) -> None:
    """Writes `config.json` and `model.safetensors` in the layout of transformers' `...ForSequenceClassification`.

    Args:
      model, folder, dtype: As in `save_model`.
      names: Of the labels, or none.
      more: Further keys of `config.json`.
    """
    family, form = FAMILIES[model.config.model_type], PAIR_FORMS[model.config.model_type]
    names = list(names) or [f"LABEL_{number}" for number in range(model.labels)]
    raw = family.config_json(model.config) | {
        "architectures": [form.architecture],
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }
    tensors = checkpoint.to_tensors(family, nnx.state(model.encoder, nnx.Param), dtype, family.prefixes[1])
    tensors |= checkpoint.to_tensors(_head_family(family, form), nnx.state(model.head, nnx.Param), dtype)
    checkpoint.save_folder(folder, {**raw, **(more or {})}, tensors, dtype)


def _form(model_type: str) -> PairForm:
    if model_type not in PAIR_FORMS:
        raise ModelError(
            f"{model_type}: there are no classifiers of sentence pairs of this family; take {', '.join(PAIR_FORMS)}."
        )
    return PAIR_FORMS[model_type]


def _head_family(family: Family, form: PairForm) -> Family:
    """The family with the tensor names of the head, which have no prefix."""
    names: Names = {"embeddings.word": family.names["embeddings.word"], "dense": form.dense, "classifier": form.output}
    return dataclasses.replace(family, names=names, prefixes=("",))
