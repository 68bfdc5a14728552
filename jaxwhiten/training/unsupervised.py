"""Objectives on single sentences that need more than their vectors: a key, a fitted whitening, a second encoder.

References:
  Zhuo et al., WhitenedCSE (ACL 2023); Carlsson et al., Semantic Re-tuning with Contrastive Tension (ICLR 2021).
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxwhiten import losses
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.head import Whiten
from jaxwhiten.training.plan import PLANNERS, Plan, Setup, plan_sentences
from jaxwhiten.training.sentences import noisy_vectors, sentence_loss, split_encoder
from jaxwhiten.training.step import Batch, Params
from jaxwhiten.whitening import Whitening, WhiteningWarning

# Of the whitening that is held while the encoder moves: a layer norm leaves a direction without variance, and what
# training puts there must not be blown up.
_SHRINKAGE = 0.01


def plan_whitenedcse(objective: str, setup: Setup) -> Plan:
    """`jaxwhiten.losses.whitenedcse` with other shuffles in every step."""
    plan = plan_sentences(objective, setup)

    def loss(params: Params, batch: Batch, key: jax.Array) -> Any:
        dropout, shuffles = jax.random.split(key)
        return plan.loss(params | {"head": {"key": shuffles}}, batch, dropout)

    return dataclasses.replace(plan, loss=loss)


def plan_simcse_whitened(objective: str, setup: Setup) -> Plan:
    """SimCSE on whitened vectors: training after whitening, where it is usual to whiten after training.

    The whitening is fitted on the first `fit_rows` sentences (10,000) by the encoder as it comes in, and held; every
    stage of a config with `stages` fits it anew, on the encoder as it has become. The encoder is exported without it.
    """
    settings = dict(setup.settings)
    rows = settings.pop("fit_rows", 10_000)
    loss = losses.objective("simcse", **setup.matryoshka, **settings)
    encoder = Encoder(setup.model, setup.folder, pooling=setup.pooling, max_length=setup.max_length)
    if not encoder.dimension < rows:
        raise InputError(f"fit_rows is {rows}; a whitening of {encoder.dimension} dimensions is fitted on more rows.")
    with warnings.catch_warnings():  # of few rows
        warnings.simplefilter("ignore", WhiteningWarning)
        whitening = Whitening.from_moments(encoder.moments(setup.columns[0][:rows]), shrinkage=_SHRINKAGE)
    whiten = jax.tree.map(jnp.asarray, Whiten.of(whitening))
    plan = plan_sentences("simcse", dataclasses.replace(setup, settings=settings))
    compiled = sentence_loss(
        plan.rebuild, lambda c, y, h: loss([whiten(x) for x in c], y, h), pooling=setup.pooling, passes=2
    )
    return dataclasses.replace(plan, loss=compiled)


def plan_ct(objective: str, setup: Setup) -> Plan:
    """`jaxwhiten.losses.contrastive_tension` of two encoders that begin equal and share nothing; the first is kept."""
    pooling, compare = setup.pooling, losses.objective(objective, **setup.matryoshka, **setup.settings)
    encoder, rebuild = split_encoder(setup.model, pooling)

    def loss(params: Params, batch: Batch, key: jax.Array) -> Any:
        ids, lengths = batch["input_ids"][:, 0], batch["lengths"][:, 0]
        parts = zip((params["encoder"], params["head"]), jax.random.split(key), strict=True)
        vectors = [noisy_vectors(rebuild(part), ids, lengths, pooling, nnx.Rngs(dropout=k)) for part, k in parts]
        return compare(vectors, None, {}), {}

    return Plan({"encoder": encoder, "head": encoder}, loss, rebuild)


PLANNERS |= {"whitenedcse": plan_whitenedcse, "simcse_whitened": plan_simcse_whitened, "ct": plan_ct}
