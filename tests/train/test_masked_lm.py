"""Masked language models of every family against transformers', in both directions, and the encoder inside them."""

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

BATCH, LENGTH = 3, 12


def ids():
    return np.random.default_rng(0).integers(5, 40, (BATCH, LENGTH)).astype(np.int32)


def everywhere():
    return np.tile(np.arange(LENGTH, dtype=np.int32), (BATCH, 1))


def scores(model, positions=None):
    positions = everywhere() if positions is None else positions
    return np.asarray(model(jnp.asarray(ids()), jnp.ones((BATCH, LENGTH), jnp.int32), jnp.asarray(positions)))


def peer_scores(peer, torch):
    with torch.no_grad():
        return peer(input_ids=torch.tensor(ids()), attention_mask=torch.ones(BATCH, LENGTH, dtype=torch.long)).logits


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


@pytest.fixture(params=slow_but([*FORMS], "bert", "modernbert", "xlm-roberta", "mpnet"))
def folder(request, tmp_path):
    model = shaken(init_masked_lm(family_config(request.param), seed=0))
    save_masked_lm(model, tmp_path / request.param)
    return tmp_path / request.param


def test_scores_and_loss_equal_those_of_transformers(folder):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, _, has_head = load_masked_lm(folder)
    assert has_head
    peer, report = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(peer).__name__ == f"{FAMILIES[folder.name].stem}ForMaskedLM"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    peer.eval()
    ours, theirs = scores(model), peer_scores(peer, torch).numpy()
    assert np.abs(theirs).max() > 1
    np.testing.assert_allclose(ours, theirs, atol=1e-4)

    labels = torch.full((BATCH, LENGTH), -100)
    labels[:, 3:5] = torch.tensor(ids()[:, 3:5]).long()
    expected = peer(input_ids=torch.tensor(ids()), labels=labels).loss.item()
    log = np.asarray(nnx.log_softmax(jnp.asarray(scores(model, everywhere()[:, 3:5]))))
    found = -np.take_along_axis(log, ids()[:, 3:5, None], axis=2).mean()
    assert found == pytest.approx(expected, abs=1e-4)
