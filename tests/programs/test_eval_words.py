"""Baselines of words, and the rows they make in `eval.sts` and `eval.retrieval`."""

import re
from collections import Counter

import numpy as np
import pytest

from configs import quora, sample
from eval import probes, retrieval, sts, words
from eval.aggregates import scores_of
from eval.data import read_quora
from eval.runs import Run
from jaxwhiten import Encoder, evaluate, metrics
from jaxwhiten.datasets import Pairs, STSTask, load_sts
from tests.conftest import own_cache
from tests.programs.test_eval_retrieval import generate
from tests.tiny import write_model

BASELINES = "tfidf,tfidf-pieces,bm25,layer0,centred"


def bag(text):
    return Counter(re.findall(r"\w+", text.lower()))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-model")


def sts_config(folder, model, **changes):
    config = sample.get_config()
    config.aggregate = "wmean"
    changes = {"whitening": "none,target", "poolings": "mean", "ks": "0", "gamma": "1", "bootstrap": 50} | changes
    config.update({"model": str(model), "baselines": BASELINES, "out": str(folder / "out"), **changes})
    return config


@pytest.mark.slow
def test_baselines_are_rows_of_sts(tmp_path, model):
    sts.main(sts_config(tmp_path, model))
    run = Run.load(tmp_path / "out")
    assert [(row.model, row.pooling, row.whitening, row.n_fit) for row in run.rows] == [
        *(("words", name, "target", 780) for name in words.WORDS),
        *(
            (str(model), pooling, *fit)
            for pooling in ("mean", "layers:0")
            for fit in (("none", 0), ("target", 780), ("centre", 780))
        ),
    ]
    assert run.header.protocol["words"] == words.WORDS
    tfidf, *rest = run.rows
    assert tfidf.versus_words is None
    for row in rest:
        difference = row.versus_words["average"]
        assert difference.value == pytest.approx(
            scores_of(row, "wmean")["average"] - scores_of(tfidf, "wmean")["average"]
        )
        assert difference.low <= difference.value <= difference.high
    pairs = load_sts("sts_sample").splits["test"]
    encoder = Encoder.from_pretrained(model, pooling="layers:0", max_length=64)
    raw = next(row for row in run.rows if (row.pooling, row.whitening) == ("layers:0", "none"))
    assert raw.tasks["sts_sample"].all == pytest.approx(evaluate(encoder, pairs).spearman, abs=0.01)


def test_baselines_are_rows_of_retrieval(tmp_path, model, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    path, config = generate(tmp_path / "pairs.tsv", 300), quora.get_config()
    changes = {"model": str(model), "dataset": str(path), "poolings": "mean", "ks": "0", "backends": "jax"}
    changes |= {"bootstrap": 200, "exact_queries": 20, "single_queries": 2, "baselines": BASELINES}
    changes |= {"whitening": "none,target,documents"}
    config.update({**changes, "out": str(tmp_path / "out")})
    retrieval.main(config)
    run = Run.load(config.out)
    assert [(row.pooling, row.whitening) for row in run.rows] == [
        *((name, fit) for name in ("tfidf", "tfidf-pieces") for fit in ("target", "documents")),
        ("bm25", "documents"),
        *((pooling, fit) for pooling in ("mean", "layers:0") for fit in ("none", "target", "documents", "centre")),
    ]
    tfidf = {row.whitening: row.mrr_at_10 for row in run.rows if row.pooling == "tfidf"}
    assert tfidf["target"] > 0.5  # duplicates are the same words in another order
    for row in run.rows[2:]:
        base = tfidf.get(row.whitening, tfidf["target"])
        assert row.versus_words.value == pytest.approx(row.mrr_at_10 - base, abs=1e-6)
    data = read_quora(path)
    encoder = Encoder.from_pretrained(model, pooling="mean", max_length=64)
    x, y = (encoder.encode(texts).astype(np.float64) for texts in (data.documents, data.queries))
    mean = np.concatenate([x, y]).mean(axis=0)
    x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x - mean, y - mean))
    centred = next(row for row in run.rows if (row.pooling, row.whitening) == ("mean", "centre"))
    expected = metrics.reciprocal_ranks(np.argsort(-(y @ x.T), axis=1, kind="stable")[:, :10], data.gold).mean()
    assert centred.mrr_at_10 == pytest.approx(expected, abs=0.005)


def test_probes_are_made_from_the_tasks(monkeypatch):
    rows = [
        ("a red house near", "a red house near"),
        ("a red house near", "one big blue lake"),
        ("a blue house", "a blue lake"),
    ]
    pairs = Pairs(*map(list, zip(*rows * 4, strict=True)), np.tile([5.0, 0.0, 4.0], 4), [""] * 12)
    monkeypatch.setattr(probes, "load_sts", lambda name, _: STSTask(name, {"test": pairs}))
    least, most = (probes.load_probe(f"{name}-overlap", None).splits["test"] for name in ("low", "high"))
    assert len(least) == len(most) == 7 * 3
    assert set(least.score) == {0.0}
    assert set(most.score) == {5.0}
    changed = probes.load_probe("swapped", None).splits["test"]
    half = len(changed) // 2
    assert half == 7 * 4  # equal sentences are left out
    assert changed.score.tolist() == [1.0] * half + [0.0] * half
    for same, other in zip(changed.sentence2[:half], changed.sentence2[half:], strict=True):
        assert same == "a blue lake"
        assert sorted(other.split()) == sorted(same.split())


def test_words_cannot_tell_swapped_words():
    texts = ["The small dog chased the other cat.", "The small cat chased the other dog."]
    changed = probes.swapped(texts[0], np.random.default_rng(0))
    assert changed != texts[0]
    assert bag(changed) == bag(texts[0])
    assert probes.swapped("a dog of it", np.random.default_rng(0)) is None
    assert probes.overlap(*texts) == 1
