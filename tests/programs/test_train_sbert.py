"""`python -m train.sbert` as users run it: the folder a run leaves, adapters, and the settings of every config."""

import functools
import json

import jax
import numpy as np
import pytest

from configs import (
    adapter,
    distil,
    matryoshka,
    nli,
    nli_mnr,
    nli_small,
    simcse,
    stsb,
    unsupervised,
)
from configs.settings import SBERT
from jaxwhiten import Encoder, losses
from jaxwhiten.training.objectives import objective_loss
from tests.conftest import own_cache
from tests.programs.runs import write_table
from tests.tiny import SENTENCES
from train import sbert
from train.objectives import find_objective


@pytest.fixture
def config(shallow_model, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    config = SBERT()
    config.model, config.output = str(shallow_model), str(tmp_path / "run")
    config.data.file, config.data.columns = str(write_table(tmp_path / "rows.tsv")), ("one", "two")
    config.data.label, config.data.classes = "label", ("no", "maybe", "yes")
    config.max_length, config.batch_size, config.buckets, config.steps = 16, 8, 1, 6
    config.dev, config.test, config.progress = "", (), False
    return config


def test_the_folder_a_run_leaves(config, tmp_path, capsys):
    sbert.main(config)
    out = tmp_path / "run"
    assert {path.name for path in out.iterdir()} >= {
        "model",
        "results.json",
        "metrics.jsonl",
        "loss.png",
        "recipe.json",
    }
    assert json.loads((out / "results.json").read_text())["step"] == 6
    card = (out / "model" / "README.md").read_text()
    assert config.model in card
    assert '"learning_rate": 2e-05' in card
    assert "model written from step 6" in capsys.readouterr().out
    encoder = Encoder.from_pretrained(out / "model", pooling="auto", max_length=16)
    library = pytest.importorskip("sentence_transformers")
    peer = library.SentenceTransformer(str(out / "model"), device="cpu")
    np.testing.assert_allclose(peer.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-5)


def test_an_adapter_is_exported_as_a_dense_layer_and_its_share_is_printed(config, tmp_path, capsys):
    config.objective, config.adapter, config.learning_rate = "mnr", "linear", 1e-2
    config.data.label, config.data.classes, config.data.held_out = "", (), 0.2
    sbert.main(config)
    output = capsys.readouterr().out
    assert "1,056 trained parameters, " in output
    out = tmp_path / "run"
    _, *held_out = (out / "held_out.tsv").read_text().splitlines()
    assert f"{96 - len(held_out)} rows of one / two" in output
    assert (out / "model" / "2_Dense" / "config.json").is_file()
    options = {"pooling": "mean", "bare": True, "max_length": 16}
    base, adapted = (Encoder.from_pretrained(folder, **options) for folder in (config.model, out / "model"))
    np.testing.assert_array_equal(adapted.encode(SENTENCES), base.encode(SENTENCES))
    assert np.abs(Encoder.from_pretrained(out / "model").encode(SENTENCES) - base.encode(SENTENCES)).max() > 1e-3


MODULES = (nli, nli_small, stsb, nli_mnr, simcse, matryoshka, distil, adapter)
CONFIGS = [module.get_config for module in MODULES]
CONFIGS += [functools.partial(adapter.get_config, kind) for kind in adapter.KINDS]
CONFIGS += [functools.partial(unsupervised.get_config, objective) for objective in unsupervised.SETTINGS]


@pytest.mark.parametrize("get_config", CONFIGS)
def test_configs_hold_a_known_objective_with_its_settings(get_config):
    config = get_config()
    objective_loss(find_objective(config.objective), config.dims, **config.settings)
    if config.objective == "softmax":
        losses.init_classifier(jax.random.key(0), 8, 3, **config.settings)
