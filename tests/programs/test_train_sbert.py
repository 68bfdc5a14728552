"""`python -m train.sbert` the folder a run leaves, heads, adapters, and the settings of every config."""

import functools
import json

import jax
import numpy as np
import pytest

from configs import adapter, distil, matryoshka, nli, nli_mnr, nli_small, simcse, stsb, unsupervised
from configs.settings import SBERT
from jaxwhiten import Encoder, losses
from jaxwhiten.training.objectives import objective_loss
from tests.programs.runs import write_table
from tests.tiny import SENTENCES
from train import sbert
from train.objectives import find_objective


@pytest.fixture
def config(shallow_model, tmp_path, fresh_cache):
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
    assert {path.name for path in out.iterdir()} >= {"metrics.jsonl", "loss.png", "recipe.json"}
    assert json.loads((out / "results.json").read_text())["step"] == 6
    card = (out / "model" / "README.md").read_text()
    assert config.model in card
    assert '"learning_rate": 2e-05' in card
    assert "model written from step 6" in capsys.readouterr().out
    found = Encoder.from_pretrained(out / "model", pooling="auto", max_length=16).encode(SENTENCES)
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(out / "model"), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(theirs, found, atol=1e-5)


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
