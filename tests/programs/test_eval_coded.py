"""Evaluations of a folder that ends with a code score its bytes as what they stand for."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from configs import quora, sample
from eval import retrieval, sts
from eval.data import read_quora
from eval.runs import Run
from jaxwhiten import Encoder, load_sts
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.metrics import reciprocal_ranks
from tests.conftest import own_cache
from tests.programs.test_eval_retrieval import generate
from tests.sentences import generated


@pytest.fixture(scope="module")
def coded(tiny_model, tmp_path_factory):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)
    encoder = encoder.with_code(SpectrumCode(bytes=6).fit(encoder.moments(generated(400))))
    return encoder.save(tmp_path_factory.mktemp("coded") / "coded")


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def decoded(folder, texts):
    """What the codes of texts stand for, of unit length, by hand."""
    encoder = Encoder.from_pretrained(folder)
    return unit(encoder.head.code.decode(np.asarray(encoder.encode(texts))))


@pytest.mark.slow
def test_sts(coded, tmp_path):
    config = sample.get_config()
    config.update({"model": str(coded), "poolings": "auto", "ks": "0,4", "out": str(tmp_path), "bootstrap": 0})
    config.update({"whitening": "none,target"})
    sts.main(config)
    raw, *whitened = Run.load(tmp_path).rows
    test = load_sts("sts_sample").splits["test"]
    first, second = (decoded(coded, side) for side in (test.sentence1, test.sentence2))
    expected = 100 * spearmanr(np.einsum("nd,nd->n", first, second), test.score).statistic
    assert raw.tasks["sts_sample"].all == pytest.approx(expected, abs=0.01)
    assert [row.k for row in whitened] == 2 * [first.shape[1], 4]
    assert raw.k == first.shape[1]


def test_retrieval(coded, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    config = quora.get_config()
    config.update({"model": str(coded), "dataset": str(generate(tmp_path / "pairs.tsv", 300)), "poolings": "auto"})
    config.update({"ks": "0", "backends": "jax", "exact_queries": 20, "single_queries": 3, "whitening": "none"})
    config.update({"examples": ("what is it?",), "out": str(tmp_path / "out"), "bootstrap": 0})
    retrieval.main(config)
    (row,) = Run.load(tmp_path / "out").rows
    data = read_quora(config.dataset)
    ranked = np.argsort(-(decoded(coded, data.queries) @ decoded(coded, data.documents).T), axis=1)[:, :10]
    assert row.mrr_at_10 == pytest.approx(reciprocal_ranks(ranked, data.gold, 10).mean(), abs=2e-3)
