"""Masked language models of every family against transformers'."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxwhiten.models import FAMILIES
from tests.conftest import slow_but
from tests.golden.cases import FAMILIES_FILE, metadata
from train.masked import FORMS, load_masked_lm, save_masked_lm
from train.masking import init_masked_lm

IDS = np.random.default_rng(0).integers(5, 40, (3, 12)).astype(np.int32)


def family_config(name):
    """The configuration of a golden case."""
    found = FAMILIES[name].parse_config(metadata(FAMILIES_FILE)["cases"][name]["config"])
    return dataclasses.replace(found, initializer_range=0.2)


def shaken(model):
    """The model with biases and norms away from 0 and 1, so that a forgotten one shows."""
    rng = np.random.default_rng(1)
    state = nnx.state(model, nnx.Param)
    for _, leaf in nnx.to_flat_state(state):
        if leaf[...].ndim == 1:
            leaf[...] = leaf[...] + 0.1 * rng.normal(size=leaf[...].shape).astype(np.float32)
    nnx.update(model, state)
    return model


@pytest.mark.parametrize("family", slow_but(FORMS, "bert", "modernbert", "xlm-roberta", "mpnet"))
def test_scores_equal_those_of_transformers(family, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    save_masked_lm(shaken(init_masked_lm(family_config(family), seed=0)), tmp_path / family)
    model, _, has_head = load_masked_lm(tmp_path / family)
    assert has_head
    peer, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / family, output_loading_info=True)
    assert type(peer).__name__ == f"{FAMILIES[family].stem}ForMaskedLM"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        theirs = peer.eval()(input_ids=torch.tensor(IDS), attention_mask=torch.ones(IDS.shape, dtype=torch.long)).logits
    assert theirs.abs().max() > 1
    for places in (np.arange(12), np.array([3, 4])):
        positions = jnp.asarray(np.tile(places, (3, 1)), jnp.int32)
        ours = model(jnp.asarray(IDS), jnp.ones(IDS.shape, jnp.int32), positions)
        np.testing.assert_allclose(ours, theirs[:, places], atol=1e-4)
