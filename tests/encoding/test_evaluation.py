"""A user's own scored pairs in one call: the plain computation, whatever form the pairs come in."""

import numpy as np
import pytest
from scipy import stats

from jaxwhiten import Encoder, ScoredPairs, evaluate, load_sts
from jaxwhiten.datasets import Pairs
from jaxwhiten.encoding import is_tuned, shipped_isoscore
from jaxwhiten.errors import InputError, NonFiniteError
from jaxwhiten.metrics import cosine_pairs
from jaxwhiten.metrics.bootstrap import bootstrap_spearman


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, device="cpu:0")


@pytest.fixture(scope="module")
def pairs():
    whole = load_sts("sts_sample").splits["test"]
    return Pairs(whole.sentence1[:40], whole.sentence2[:40], whole.score[:40], whole.subset[:40])


def test_equal_to_the_plain_computation_in_every_form(encoder, pairs):
    a, b = (encoder.encode(side) for side in (pairs.sentence1, pairs.sentence2))
    found, gold = cosine_pairs(a, b), pairs.score
    result = evaluate(encoder, pairs)
    assert result.spearman == pytest.approx(100 * stats.spearmanr(found, gold).statistic, abs=1e-3)
    assert result.pearson == pytest.approx(100 * stats.pearsonr(found, gold).statistic, abs=1e-3)
    assert result.interval == bootstrap_spearman(found, gold, [""] * 40)["all"]
    assert result.interval.low < result.spearman < result.interval.high
    assert (result.pairs, result.similarity, result.encoding) == (40, "cosine", encoder.encoding())
    rows = list(zip(pairs.sentence1, pairs.sentence2, gold.tolist(), strict=True))
    columns = (pairs.sentence1, pairs.sentence2, gold.tolist())
    for form in (rows, tuple(rows), iter(rows), columns, ScoredPairs(a, b, gold)):
        assert evaluate(encoder, form).spearman == pytest.approx(result.spearman, abs=1e-3)
    three = tuple(rows[:3])  # three rows are not three columns
    assert evaluate(encoder, three, resamples=10).pairs == 3


def test_the_encoders_own_similarity_and_prompt_are_used(tiny_model, pairs):
    options = {"prompts": {"query": "Music "}, "default_prompt_name": "query", "similarity_fn_name": "manhattan"}
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, device="cpu:0", **options)
    a, b = (encoder.encode(side, prompt="Music ") for side in (pairs.sentence1, pairs.sentence2))
    result = evaluate(encoder, pairs, resamples=50, seed=3)
    wanted = stats.spearmanr(-np.abs(a - b).sum(1), pairs.score).statistic
    assert result.spearman == pytest.approx(100 * wanted, abs=1e-3)
    assert (result.similarity, result.resamples, result.seed) == ("manhattan", 50, 3)


def test_what_is_shown(encoder, pairs):
    shown = repr(evaluate(encoder, pairs, resamples=20))
    assert shown.startswith("Evaluation(Spearman ")
    assert shown.endswith(f"40 pairs; {encoder.name}, mean, cosine, up to 32 tokens, float32)")


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([("a", "b", 1.0)], InputError, "two different scores"),
        ([("a", "b", 1.0), ("c", "d", 1.0)], InputError, "two different scores"),
        ([], InputError, "two different scores"),
        ([("a", "b"), ("c", "d")], InputError, "Row 0: expected two sentences and a score"),
        (["abc", "def"], InputError, "Row 0: expected two sentences and a score"),
        ((["a", "b"], ["c"], [1, 2]), InputError, "2 and 1 sentences, but 2 scores"),
        ((["a", "b"], ["c", "d"], [1, "x"]), InputError, "not all numbers"),
        ((["a", "b"], ["c", 4], [1, 2]), InputError, "expected a str, got int 4"),
        ((["a", "b"], ["c", "d"], [1, float("nan")]), NonFiniteError, "pair 1"),
    ],
)
def test_mistakes_are_named(encoder, pairs, error, message):
    with pytest.raises(error, match=message):
        evaluate(encoder, pairs)


def test_an_encoder_s_kind_is_told_by_the_sentences_that_ship():
    untuned = Encoder.from_pretrained("jaxwhiten-tiny", pooling="first_last_avg")
    assert shipped_isoscore(untuned) == pytest.approx(0.038, abs=0.002)
    assert not is_tuned(untuned)
    assert not is_tuned(untuned.whiten(load_sts("sts_sample").splits["test"].sentence1, k=30))


@pytest.mark.parametrize(("pooling", "tuned"), [("mean", True), ("cls", True), ("layers:1", False)])
def test_layers_that_were_not_tuned_are_told_from_those_that_were(minilm, pooling, tuned):
    assert is_tuned(Encoder.from_pretrained(minilm, pooling=pooling)) == tuned
