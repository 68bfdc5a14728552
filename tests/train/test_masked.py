"""Masked batches through model and loss: learning, devices, accumulation, bfloat16, the score on text held out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxwhiten.options import TrainingOptions
from jaxwhiten.training.sentences import split_encoder
from jaxwhiten.training.step import create_state, data_mesh, make_step, place_batch
from tests.tiny import tiny_config
from train import masking
from train.corpus import TokenStream
from train.masking import MaskRules, mask_blocks, masked_batches, masked_evaluator, masked_loss

VOCAB, LENGTH = 60, 16
RULES = MaskRules(4, np.arange(VOCAB) >= 5, np.zeros(VOCAB, bool), share=0.25)
ONE_DEVICE = Mesh(np.array(jax.devices()[:1]), ("data",))


def stream(blocks=96, seed=0):
    """Text with an order to be learned: each token is the one before it plus one."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, VOCAB - 5, blocks)[:, None]
    tokens = 5 + (starts + np.arange(LENGTH - 1)) % (VOCAB - 5)
    return TokenStream(tokens.ravel().astype(np.uint16), 2, LENGTH)


def model(dropout=None, dtype="float32"):
    fresh = masking.init_masked_lm(tiny_config(vocab_size=VOCAB, num_layers=1), seed=0, dtype=dtype)
    return masking.with_rates(fresh, dropout)


def run(mesh, steps=4, rate=1e-3, accumulate=1, batch_size=16, **sizes):
    params, rebuild = split_encoder(model(**sizes))
    options = TrainingOptions(steps=steps, batch_size=batch_size, learning_rate=rate, accumulate=accumulate)
    mesh = mesh or data_mesh(options)
    state = create_state(params, options, mesh)
    step = make_step(masked_loss(rebuild), options, mesh)
    batches, losses = masked_batches(stream(), RULES, batch_size=batch_size), []
    for _ in range(steps):
        state, metrics = step(state, place_batch(next(batches), mesh))
        losses.append(float(metrics["loss"]))
    return losses, state, rebuild


@pytest.mark.slow
def test_the_order_is_learned():
    losses, state, rebuild = run(ONE_DEVICE, steps=200, rate=3e-3, dropout=0.0)
    assert losses[0] == pytest.approx(np.log(VOCAB), abs=0.5)
    scores = masked_evaluator(rebuild, stream(40, seed=1), RULES)(jax.device_get(state.params))
    assert scores["held-out loss"] < 0.8 * np.log(VOCAB)
    assert scores["held-out accuracy"] > 10


@pytest.mark.devices
def test_the_score_is_the_mean_over_masked_places():
    """Whatever the batch size, and with a last batch that is not full."""
    params, rebuild = split_encoder(model())
    held_out = stream(21)
    result = masked_evaluator(rebuild, held_out, RULES, batch_size=32)(params)
    batch = mask_blocks(np.resize(held_out.blocks(np.arange(21)), (24, LENGTH)), RULES, np.random.default_rng(0))
    chosen = batch["weights"][:21] > 0
    scores = np.asarray(
        rebuild(params)(*(jnp.asarray(x) for x in (batch["input_ids"], np.ones((24, LENGTH), int), batch["positions"])))
    )[:21]
    log = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    right = np.take_along_axis(log, batch["targets"][:21, :, None], 2)[..., 0]
    assert result["held-out loss"] == pytest.approx(-right[chosen].mean(), abs=1e-5)
    assert result["held-out accuracy"] == pytest.approx(
        100 * (scores.argmax(-1) == batch["targets"][:21])[chosen].mean(), abs=1e-4
    )
    assert masked_evaluator(rebuild, held_out, RULES, blocks=8)(params) != result
