"""The score of a masked language model on text held out."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.training.sentences import split_encoder
from tests.tiny import tiny_config
from train import masking
from train.corpus import TokenStream
from train.masking import MaskRules, mask_blocks, masked_evaluator

VOCAB, LENGTH = 60, 16
RULES = MaskRules(4, np.arange(VOCAB) >= 5, np.zeros(VOCAB, bool), share=0.25)


def stream(blocks=96, seed=0):
    """Text with an order to be learned: each token is the one before it plus one."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, VOCAB - 5, blocks)[:, None]
    tokens = 5 + (starts + np.arange(LENGTH - 1)) % (VOCAB - 5)
    return TokenStream(tokens.ravel().astype(np.uint16), 2, LENGTH)


def model(dropout=None, dtype="float32"):
    fresh = masking.init_masked_lm(tiny_config(vocab_size=VOCAB, num_layers=1), seed=0, dtype=dtype)
    return masking.with_rates(fresh, dropout)


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
