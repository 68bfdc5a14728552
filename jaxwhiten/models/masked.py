"""Masked language models: an encoder, the head that guesses masked tokens, and their files.

The head is a dense layer, an activation and a layer norm, then the product with the word embeddings (tied, so there
is no second matrix of the vocabulary's size) and a bias a token. Families name and place its parts differently.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", section 3.1.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from jaxwhiten import io
from jaxwhiten.errors import ModelError
from jaxwhiten.models import checkpoint
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import Family, Part
from jaxwhiten.models.layers import activation, layer_norm, linear, matmul_precision
from jaxwhiten.models.loading import DTYPES, load_model, read_json
from jaxwhiten.models.registry import FAMILIES
from jaxwhiten.models.transformer import TransformerEncoder


class HeadForm(NamedTuple):
    """How a family's masked language models write and compute their head.

    Attributes:
      architecture: Name in `config.json`.
      dense: Name of the dense layer's tensors, without the last part.
      norm: The same for the layer norm.
      output: The same for the bias of the output, in the places it may lie.
      activation: Its name, or "" for the encoder's own.
      dense_bias: Whether the dense layer has a bias.
      epsilon: Of the layer norm, or 0 for the encoder's own.
    """

    architecture: str
    dense: str
    norm: str
    output: tuple[str, ...]
    activation: str = ""
    dense_bias: bool = True
    epsilon: float = 0.0


_BERT = HeadForm(
    "BertForMaskedLM",
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    ("cls.predictions", "cls.predictions.decoder"),
)
_ROBERTA = HeadForm("RobertaForMaskedLM", "lm_head.dense", "lm_head.layer_norm", ("lm_head", "lm_head.decoder"), "gelu")
HEADS: dict[str, HeadForm] = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA._replace(architecture="XLMRobertaForMaskedLM"),
    "electra": HeadForm(
        "ElectraForMaskedLM",
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        ("generator_lm_head",),
        "gelu",
    ),
    "distilbert": HeadForm(
        "DistilBertForMaskedLM", "vocab_transform", "vocab_layer_norm", ("vocab_projector",), epsilon=1e-12
    ),
    "albert": HeadForm(
        "AlbertForMaskedLM",
        "predictions.dense",
        "predictions.LayerNorm",
        ("predictions", "predictions.decoder"),
    ),
    "mpnet": _ROBERTA._replace(architecture="MPNetForMaskedLM"),
    "modernbert": HeadForm("ModernBertForMaskedLM", "head.dense", "head.norm", ("decoder",), "gelu", dense_bias=False),
    "nomic_bert": _BERT._replace(architecture="NomicBertForMaskedLM", norm="cls.predictions.transform.layer_norm"),
}


class MaskedHead(nnx.Module):
    """Hidden states to one score a token of the vocabulary."""

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        form = HEADS[config.model_type]
        eps = form.epsilon or config.layer_norm_eps
        self.dtype = dtype
        self.activation = activation(form.activation or config.hidden_act)
        self.dense = linear(config.hidden_size, config.embedding_size, config, dtype, rngs, form.dense_bias)
        self.norm = layer_norm(config.embedding_size, dataclasses.replace(config, layer_norm_eps=eps), dtype, rngs)
        self.bias = nnx.Param(jnp.zeros(config.vocab_size))

    def __call__(
        self, hidden: Float[Array, "batch positions d"], words: Float[Array, "vocab width"]
    ) -> Float[Array, "batch positions vocab"]:
        """Scores before the softmax, in float32.

        Args:
          hidden: Last hidden states at the positions to guess.
          words: The encoder's word embeddings.
        """
        x = self.norm(self.activation(self.dense(hidden)))
        scores = jnp.einsum(
            "bpd,vd->bpv",
            x,
            words.astype(self.dtype),
            precision=matmul_precision(self.dtype),
            preferred_element_type=jnp.float32,
        )
        return scores + self.bias[...]


class MaskedLM(nnx.Module):
    """An encoder with the head of masked language modelling.

    Args:
      encoder: Of any family.
      rngs: Source of the head's initial weights.
    """

    def __init__(self, encoder: TransformerEncoder, *, rngs: nnx.Rngs):
        self.encoder = encoder
        self.head = MaskedHead(encoder.config, dtype=encoder.dtype, rngs=rngs)

    @property
    def config(self) -> EncoderConfig:
        """The encoder's."""
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
        """Scores of every token of the vocabulary, at the chosen positions only.

        Args:
          input_ids: Token ids.
          attention_mask: 1 for tokens, 0 for padding.
          positions: Which positions of each row to guess.
          deterministic: True switches dropout off.
          rngs: Source of dropout noise (stream `dropout`), needed when `deterministic` is False.
        """
        output = self.encoder(input_ids, attention_mask, deterministic=deterministic, rngs=rngs)
        chosen = jnp.take_along_axis(output.hidden_states[-1], positions[:, :, None], axis=1)
        return self.head(chosen, jnp.asarray(self.encoder.embeddings.word.embedding[...]))


def _without_pooler(model: TransformerEncoder) -> TransformerEncoder:
    """The encoder without BERT's pooler, which masked language modelling does not train."""
    model.pooler = None
    model.config = dataclasses.replace(model.config, pooler=False)
    return model


def with_rates(model: MaskedLM, dropout: float | None) -> MaskedLM:
    """The model with every dropout rate set; None leaves them. Its `config`, which is what is saved, stays."""
    if dropout is not None:
        for _, part in nnx.iter_modules(model):
            if isinstance(part, nnx.Dropout):
                part.rate = dropout
    return model


def init_masked_lm(config: EncoderConfig, *, seed: int, dtype: str = "float32", remat: bool = False) -> MaskedLM:
    """A masked language model with random weights, for training from scratch.

    Args:
      config: Of the encoder; a pooler is left out.
      seed: Of the weights.
      dtype: What matrix products run in, `"float32"` or `"bfloat16"`. Parameters are float32.
      remat: Recompute activations in the backward pass.
    """
    rngs = nnx.Rngs(seed)
    config = dataclasses.replace(config, pooler=False)
    return MaskedLM(TransformerEncoder(config, dtype=DTYPES[dtype], remat=remat, rngs=rngs), rngs=rngs)


def load_masked_lm(
    model: str | Path, *, seed: int = 0, dtype: str = "float32", revision: str | None = None, remat: bool = False
) -> tuple[MaskedLM, Path, bool]:
    """Reads an encoder and, where the checkpoint has one, its head.

    Args:
      model: A local folder or a hub id.
      seed: Of a head that the checkpoint lacks.
      dtype: What matrix products run in.
      revision: Commit, tag or branch on the hub.
      remat: Recompute activations in the backward pass.

    Returns:
      The model, the folder it came from, and whether the head came from it too.

    Raises:
      ModelError: Something in the folder cannot be read, or its head is not whole.
    """
    encoder, config, folder = load_model(model, dtype=dtype, revision=revision, remat=remat)
    masked = MaskedLM(_without_pooler(encoder), rngs=nnx.Rngs(seed))
    form = HEADS[config.model_type]
    tensors, _ = checkpoint.open_weights(folder)
    if f"{form.dense}.weight" not in tensors:
        return masked, folder, False
    _check_head_settings(folder)
    state = nnx.state(masked.head, nnx.Param)
    values = checkpoint.load_parameters(folder, _head_family(FAMILIES[config.model_type], form), state)
    nnx.replace_by_pure_dict(state, values)
    nnx.update(masked.head, jax.tree.map(jnp.asarray, state))
    return masked, folder, True


def _check_head_settings(folder: Path) -> None:
    """ModernBERT's head has switches of its own."""
    raw = read_json(folder / "config.json")
    plain = {"classifier_bias": False, "classifier_activation": "gelu", "decoder_bias": True}
    for key, value in plain.items():
        if raw.get("model_type") == "modernbert" and raw.get(key, value) != value:
            raise ModelError(f"{folder / 'config.json'}: {key} is {raw[key]!r}; only {value!r} is supported.")


def _head_family(family: Family, form: HeadForm, prefix: str = "") -> Family:
    """The name table of a head alone."""
    names: dict[str, Any] = {
        f"{prefix}dense": form.dense,
        f"{prefix}norm": form.norm,
        prefix.removesuffix("."): form.output,
    }
    return dataclasses.replace(
        family, names={"embeddings.word": family.names["embeddings.word"], **names}, prefixes=("",)
    )


def _prefixed(place: Any, prefix: str) -> Any:
    if isinstance(place, str):
        return prefix + place
    if isinstance(place, Part):
        return place._replace(name=prefix + place.name)
    return tuple(_prefixed(part, prefix) for part in place)


def save_masked_lm(model: MaskedLM, folder: str | Path, *, dtype: str = "float32") -> None:
    """Writes `config.json` and `model.safetensors` as transformers' `...ForMaskedLM` has them.

    `load_model` and `Encoder.from_pretrained` read the encoder out of the same folder.

    Args:
      model: The model.
      folder: Made if missing.
      dtype: Type of the stored weights, `"float32"` or `"float16"`.
    """
    folder, config = Path(folder), model.config
    family, form = FAMILIES[config.model_type], HEADS[config.model_type]
    raw = family.config_json(config) | {"architectures": [form.architecture], "tie_word_embeddings": True}
    io.write_json(folder / "config.json", raw | {"dtype": dtype})
    names = {f"encoder.{ours}": _prefixed(theirs, family.prefixes[1]) for ours, theirs in family.names.items()}
    both = dataclasses.replace(family, names=names | dict(_head_family(family, form, "head.").names))
    checkpoint.save_parameters(folder / checkpoint.SAFETENSORS, both, nnx.state(model, nnx.Param), dtype)
