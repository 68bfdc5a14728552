"""`python -m train.sbert` the folder a run leaves, heads, adapters, and the settings of every config."""

import functools
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from configs import adapter, distil, matryoshka, nli, nli_mnr, nli_small, simcse, stsb, unsupervised
from configs.settings import SBERT
from jaxwhiten import Encoder, evaluate, losses
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import Pairs, load_sts
from jaxwhiten.head import Dense, Head, Normalize
from jaxwhiten.head.pooling import Cls
from jaxwhiten.models import load_model
from jaxwhiten.training.objectives import objective_loss
from jaxwhiten.whitening import Whitening
from tests.conftest import own_cache
from tests.programs.runs import write_table
from tests.tiny import SENTENCES
from train import common, sbert
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


def vectors_of_sentence_transformers(folder):
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)


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
    np.testing.assert_allclose(vectors_of_sentence_transformers(out / "model"), found, atol=1e-5)


def test_a_folder_is_trained_through_its_head_and_given_back_whole(config, tmp_path, capsys, monkeypatch):
    """Without its whitening and code; scores turned upside down make the model worse, which is said."""
    rng, test = np.random.default_rng(0), load_sts("sts_sample").splits["test"]
    pairs = Pairs(test.sentence1[:40], test.sentence2[:40], test.score[:40], test.subset[:40])
    monkeypatch.setattr(common, "load_sts", lambda *_: SimpleNamespace(splits={"test": pairs}))
    weight, bias = (rng.normal(size=shape).astype(np.float32) / 5 for shape in ((24, 32), 24))
    head = Head.of((Cls(), Dense(weight, bias, None, "Tanh"), Normalize()))
    settings = {"prompts": {"plain": "water "}, "default_prompt_name": "plain", "max_length": 24}
    model, _, folder = load_model(config.model)
    floats = Encoder.from_module(model, folder, head=head, **settings)
    vectors = floats.encode(pairs.sentence1)
    sample = rng.normal(vectors.mean(0), vectors.std(0), (400, 24)).astype(np.float32)
    whitening = Whitening(gamma=0.5, n_components=20, shrinkage="oas").fit(sample)
    base = floats.with_whitening(whitening).with_code(SpectrumCode(bytes=4).fit(whitening)).save(tmp_path / "base")
    rows = zip(pairs.sentence1, pairs.sentence2, (str(5 - score) for score in pairs.score), strict=True)
    (tmp_path / "rows.tsv").write_text("".join("\t".join(row) + "\n" for row in [("one", "two", "score"), *rows]))
    config.model, config.objective, config.learning_rate, config.accumulate = str(base), "cosent", 1e-2, 2
    config.data.label, config.data.classes, config.max_length, config.test = "score", (), 0, ("sts_sample",)
    config.steps = 20
    sbert.main(config)

    output, out = capsys.readouterr().out, tmp_path / "run" / "model"
    assert f"jaxwhiten fit TEXTS --model {out} -k 20 --bytes 4 --gamma 0.5 -o " in output
    assert "cls > dense Tanh > normalize, up to 24 tokens; one: 'water ', two: 'water '" in output
    assert "negatives come from 4 rows" in output
    after, name = Encoder.from_pretrained(out), "sts_sample test"
    assert (after.prompts, after.max_length) == (floats.prompts, 24)
    assert np.abs(after.view.head.steps[1].weight - weight).max() > 1e-3
    scores = json.loads((tmp_path / "run" / "results.json").read_text())
    for when, encoder in (("before", Encoder.from_pretrained(base)), ("after", after)):
        assert scores[when][name] == pytest.approx(evaluate(encoder, pairs, resamples=2).spearman, abs=1e-4)
    assert f"worse: {scores['before'][name] - scores['after'][name]:.2f} lower on {name}" in output
    np.testing.assert_allclose(vectors_of_sentence_transformers(out), after.encode(SENTENCES), atol=1e-5)


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
