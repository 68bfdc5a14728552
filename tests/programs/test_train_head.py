"""`train.sbert` on whole folders: it trains through their head, gives the head back, and says what it leaves out."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from configs.settings import SBERT
from jaxwhiten import Encoder, evaluate
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import Pairs, load_sts
from jaxwhiten.head import Dense, Head, Normalize
from jaxwhiten.head.pooling import Cls
from jaxwhiten.models import load_model
from jaxwhiten.whitening import Whitening
from tests.conftest import own_cache
from tests.tiny import SENTENCES
from train import common, sbert

PROMPTS = {"query": "man: ", "document": "the sea: ", "plain": "water "}


def write_folder(folder, model, width=24):
    """CLS pooling, a Dense layer, unit length, prompts and a maximum length of its own."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(width, 32)).astype(np.float32) / 4, rng.normal(size=width).astype(np.float32) / 9
    head = Head.of((Cls(), Dense(weight, bias, None, "Tanh"), Normalize()))
    settings = {"prompts": PROMPTS, "default_prompt_name": "plain", "similarity_fn_name": "dot"}
    return Encoder.from_module(load_model(model)[0], model, head=head, max_length=24, **settings).save(folder)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    config = SBERT()
    config.update({"dev": "", "test": (), "progress": False, "steps": 4, "batch_size": 8, "buckets": 1})
    config.output, config.data.file = str(tmp_path / "run"), str(tmp_path / "rows.tsv")
    return config


def test_a_folder_is_trained_through_its_head_and_given_back_whole(
    config, shallow_model, tmp_path, capsys, monkeypatch
):
    """Scores turned upside down make the model worse, which is said."""
    test = load_sts("sts_sample").splits["test"]
    pairs = Pairs(test.sentence1[:40], test.sentence2[:40], test.score[:40], test.subset[:40])
    monkeypatch.setattr(common, "load_sts", lambda *_: SimpleNamespace(splits={"test": pairs}))
    rows = zip(pairs.sentence1, pairs.sentence2, (str(5 - score) for score in pairs.score), strict=True)
    (tmp_path / "rows.tsv").write_text("".join("\t".join(row) + "\n" for row in [("one", "two", "score"), *rows]))
    plain = write_folder(tmp_path / "plain", shallow_model)
    floats = Encoder.from_pretrained(plain)
    vectors = floats.encode(pairs.sentence1)
    sample = np.random.default_rng(0).normal(vectors.mean(0), vectors.std(0), (400, 24)).astype(np.float32)
    whitening = Whitening(gamma=0.5, n_components=20, shrinkage="oas").fit(sample)
    base = floats.with_whitening(whitening).with_code(SpectrumCode(bytes=4).fit(whitening)).save(tmp_path / "base")
    config.model, config.objective, config.learning_rate, config.accumulate = str(base), "cosent", 1e-2, 2
    config.data.columns, config.data.label, config.test = ("one", "two"), "score", ("sts_sample",)
    sbert.main(config)

    output, out = capsys.readouterr().out, tmp_path / "run" / "model"
    assert f"jaxwhiten fit TEXTS --model {out} -k 20 --bytes 4 --gamma 0.5 -o " in output
    assert "cls > dense Tanh > normalize, up to 24 tokens; one: 'water ', two: 'water '" in output
    assert "negatives come from 4 rows" in output

    old, before, after = (Encoder.from_pretrained(folder) for folder in (plain, base, out))
    assert np.abs(old.view.head.steps[1].weight - after.view.head.steps[1].weight).max() > 1e-3
    scores = json.loads((tmp_path / "run" / "results.json").read_text())
    name = "sts_sample test"
    assert scores["before"][name] == pytest.approx(evaluate(before, pairs, resamples=2).spearman, abs=1e-9)
    assert scores["after"][name] == pytest.approx(evaluate(after, pairs, resamples=2).spearman, abs=1e-4)
    assert f"worse: {scores['before'][name] - scores['after'][name]:.2f} lower on {name}" in output
    library = pytest.importorskip("sentence_transformers")
    for folder, encoder in ((base, before.with_view(before.view.uncoded)), (out, after)):
        peer = library.SentenceTransformer(str(folder), device="cpu")
        np.testing.assert_allclose(peer.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-5)
