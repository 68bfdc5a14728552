"""Classifiers of sentence pairs of every family against transformers', and their files in both directions."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxwhiten.errors import ModelError
from jaxwhiten.models import FAMILIES as NAMED
from jaxwhiten.models import PairClassifier, init_model, load_pair_classifier, save_pair_classifier
from jaxwhiten.models.positions import Segments
from tests.conftest import slow_but
from tests.tiny import FAMILIES, tiny_config, write_model

VOCAB, BATCH, LENGTH = 200, 2, 9
SIZES = {"num_layers": 2, "intermediate_size": 16}


def classifier(family, labels=2):
    changes = FAMILIES.get(family, FAMILIES["roberta"] | {"model_type": family})
    config = tiny_config(initializer_range=0.3, **{**SIZES, **changes})
    return PairClassifier(init_model(config, seed=1), labels, rngs=nnx.Rngs(2))


def batch(family):
    rng = np.random.default_rng(0)
    ids, types = rng.integers(5, VOCAB, (BATCH, LENGTH)), np.arange(LENGTH) >= 4
    return ids.astype(np.int32), np.tile(types, (BATCH, 1)).astype(np.int32) * (family in ("bert", "albert", "electra"))


def logits(model, ids, types, **layout):
    return np.asarray(model(jnp.asarray(ids + VOCAB * types), jnp.ones_like(ids), **layout).pooler)


@pytest.mark.parametrize("family", slow_but((name for name, family in NAMED.items() if family.pairs), "electra"))
def test_logits_are_those_of_transformers(family, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForSequenceClassification

    model = classifier(family)
    save_pair_classifier(model, tmp_path, ["no", "yes"], {})
    peer, found = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    assert peer.config.id2label == {0: "no", 1: "yes"}
    ids, types = batch(family)
    typed = {"token_type_ids": torch.tensor(types)} if types.any() else {}
    with torch.no_grad():
        expected = peer.eval()(torch.tensor(ids), torch.ones(BATCH, LENGTH), **typed).logits.numpy()
    np.testing.assert_allclose(logits(model, ids, types), expected, atol=1e-5)


@pytest.mark.parametrize("family", slow_but(["bert", "roberta"], "roberta"))
def test_read_back_and_several_pairs_in_a_row(family, tmp_path):
    """With a pooler and without; a row of two pairs has the logits of both."""
    model = classifier(family)
    save_pair_classifier(model, tmp_path, ["no", "yes"], {})
    again, _ = load_pair_classifier(tmp_path)
    ids, types = batch(family)
    expected = logits(model, ids, types)
    np.testing.assert_array_equal(logits(again, ids, types), expected)
    row = ids.reshape(1, -1), types.reshape(1, -1)
    segments = Segments.of(jnp.full((1, 2), LENGTH), 2 * LENGTH)
    np.testing.assert_allclose(logits(again, *row, segments=segments)[0], expected, atol=1e-5)
    assert np.abs(logits(again, ids, 1 - types) - expected).max() > 1e-3 or family == "roberta"
    assert load_pair_classifier(tmp_path, 3, seed=1)[0].labels == 3  # another number of labels: a new head


@pytest.mark.slow
def test_mistakes(tmp_path):
    write_model(tmp_path / "encoder", **SIZES)
    with pytest.raises(ModelError, match="contains no classifier of sentence pairs: train one"):
        load_pair_classifier(tmp_path / "encoder")
    write_model(tmp_path / "other", **{**SIZES, **FAMILIES["modernbert"]})
    with pytest.raises(ModelError, match="modernbert: this family has no classifiers of sentence pairs; use bert, "):
        load_pair_classifier(tmp_path / "other", 1)
