"""A user's own scored pairs in one call: the plain computation, whatever form the pairs come in."""

import functools
import math

import numpy as np
import pytest
from scipy import stats

from jaxwhiten import Encoder, Moments, ScoredPairs, Space, Whitening, build_index, evaluate, load_sts, metrics
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import Pairs, from_pairs
from jaxwhiten.errors import InputError, NonFiniteError
from jaxwhiten.metrics import binary_scores, cosine_pairs
from jaxwhiten.metrics.bootstrap import Interval, correlations, percentile_interval, resamples
from jaxwhiten.scoring import Evaluation, Row
from jaxwhiten.scoring.measures import NO_CHANGE, Change
from jaxwhiten.scoring.result import ERROR, SHARE
from tests.conftest import slow_but

pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")  # few texts


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
    assert result.rows[0].scores["pearson"] == pytest.approx(100 * stats.pearsonr(found, gold).statistic, abs=1e-3)
    drawn = resamples(correlations(found[None], gold), np.arange(40))[0]
    assert result.interval == pytest.approx(percentile_interval(drawn, 40), abs=1e-3)  # matrix products round
    assert result.interval.low < result.spearman < result.interval.high
    assert (result.counts["pairs"], result.similarity, result.space) == (40, "cosine", encoder.view.space)
    rows = list(zip(pairs.sentence1, pairs.sentence2, gold.tolist(), strict=True))
    columns = (pairs.sentence1, pairs.sentence2, gold.tolist())
    for form in (rows, tuple(rows), iter(rows), columns, ScoredPairs(a, b, gold)):
        assert evaluate(encoder, form).spearman == pytest.approx(result.spearman, abs=1e-3)
    for few in (2, 3):  # three rows are not three columns
        assert evaluate(encoder, tuple(rows[:few]), resamples=10).counts == {"pairs": few}


def test_the_encoders_own_similarity_and_prompt_are_used(tiny_model, pairs):
    options = {"prompts": {"query": "Music "}, "default_prompt_name": "query", "similarity_fn_name": "manhattan"}
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, device="cpu:0", **options)
    a, b = (encoder.encode(side, prompt="Music ") for side in (pairs.sentence1, pairs.sentence2))
    result = evaluate(encoder, pairs, resamples=50, seed=3)
    wanted = stats.spearmanr(-np.abs(a - b).sum(1), pairs.score).statistic
    assert result.spearman == pytest.approx(100 * wanted, abs=1e-3)
    assert (result.similarity, result.resamples, result.seed) == ("manhattan", 50, 3)


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([("a", "b", 1.0), ("c", "d", 1.0)], InputError, "two different scores"),
        ([], InputError, "two different scores"),
        ([("a", "b"), ("c", "d")], InputError, "Row 0: expected two sentences and a score"),
        (["abc", "def"], InputError, "2 different texts, of which none can be held out: pass `queries`"),
        ((["a", "b"], ["c"], [1, 2]), InputError, "2 and 1 sentences, but 2 scores"),
        ((["a", "b"], ["c", "d"], [1, "x"]), InputError, "not all numbers"),
        ((["a", "b"], ["c", "d"], [1, float("nan")]), NonFiniteError, "Row 1 of the scores"),
    ],
)
def test_mistakes_are_named(encoder, pairs, error, message):
    with pytest.raises(error, match=message):
        evaluate(encoder, pairs)


@pytest.fixture(scope="module")
def search():
    """Half of the sentences of the sample find their partners among all."""
    whole = load_sts("sts_sample").splits["test"]
    rows = zip(whole.sentence1[:120], whole.sentence2[:120], whole.score[:120], strict=True)
    return from_pairs("sample", [(a, b, a, b, bool(score >= 3)) for a, b, score in rows])


def test_a_corpus_is_searched_with_the_judged_documents():
    words = ["a dog", "rain", "a red car", "snow in May", "two cats", "a loud band", "the old bridge"]
    judged = from_pairs("sample", [(word, word, word, f"Here is {word}.", True) for word in words])
    encoder = Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", max_length=32)
    corpus = [f"{word}, {number}" for word in words for number in range(10)] + judged.documents[:2]
    alone, among = (evaluate(encoder, judged, corpus=texts, resamples=50) for texts in (None, corpus))
    assert (alone.counts["documents"], among.counts["documents"]) == (7, 77)
    assert among.score < alone.score
    assert alone.verdict.endswith("add the rest of the corpus with `corpus`.")
    assert [row.name for row in among.rows] == ["raw", "hybrid", "TF-IDF", "BM25"]
    index = encoder.index(list(dict.fromkeys([*judged.documents, *corpus])))
    first = [[hit.id for hit in index.search(query, k=10, hybrid=True)] for query in judged.queries]
    expected = 100 * metrics.reciprocal_ranks(np.array(first), judged.gold).mean()
    assert among.rows[1].scores["mrr_at_10"] == pytest.approx(expected)
    assert "relevant to a query" not in among.verdict
    with pytest.raises(InputError, match="for pairs"):
        evaluate(encoder, (["a", "b"], ["c", "d"], [1.0, 2.0]), corpus=corpus)


def test_a_search_is_scored_as_by_an_index(encoder, search):
    found = evaluate(encoder, search, bytes=4, k=8, gamma=0.5, resamples=50)
    assert [(row.name, row.bytes) for row in found.rows] == [
        *[("raw", 128), ("whitened", 32), ("whitened int8", 32), ("whitened binary", 4)],
        *[("whitened code", 4), ("hybrid", 128), ("TF-IDF", None), ("BM25", None)],
    ]
    asked = search.with_gold()
    documents, queries = encoder.encode(search.documents), encoder.encode(asked.queries)
    moments = Moments().update(documents)
    whitening = Whitening.from_moments(moments, gamma=0.5, shrinkage="oas")
    indexes = [
        build_index(documents, "jax"),
        build_index(documents, "jax", whitening=whitening.with_params(n_components=8)),
        build_index(documents, "jax", whitening=whitening, codes="int8"),
        build_index(documents, "jax", whitening=whitening, codes="spectrum", bytes=4),
    ]
    rows = [row for row in found.rows if row.name != "whitened binary"]  # has signs of columns that are all but 0
    measures = {"ndcg_at_10": metrics.discounted_gains, "mrr_at_10": metrics.reciprocal_ranks}
    measures["recall_at_100"] = functools.partial(metrics.recalls, k=100)
    for row, index in zip(rows, indexes, strict=False):
        _, ids = index.search(queries, 100)
        for name, measure in measures.items():
            assert row.scores[name] == pytest.approx(100 * measure(ids, asked.gold).mean(), abs=0.01)
        assert row.intervals["mrr_at_10"].low <= row.scores["mrr_at_10"] <= row.intervals["mrr_at_10"].high
    assert found.counts == {"documents": len(search.documents), "queries": len(asked.queries)}
    assert (found.measure, found.own, found.score) == ("ndcg_at_10", 0, found.rows[0].scores["ndcg_at_10"])


def test_tables_are_pairs_or_searches(encoder, pairs):
    columns = {"sentence1": pairs.sentence1, "sentence2": pairs.sentence2, "score": pairs.score}
    assert evaluate(encoder, columns, resamples=10).rows == evaluate(encoder, pairs, resamples=10).rows
    rows = list(zip(pairs.sentence1, pairs.sentence2, strict=True))
    wanted = evaluate(encoder, from_pairs("t", [(a, b, a, b, True) for a, b in rows]), resamples=10)
    columns = {"query": pairs.sentence1, "document": pairs.sentence2}
    assert evaluate(encoder, columns, resamples=10).rows == wanted.rows


@pytest.mark.parametrize("kind", slow_but(["pairs", "search"], "search"))
def test_another_encoder_is_compared(encoder, pairs, search, kind):
    data, other = {"pairs": pairs, "search": search}[kind], encoder.with_pooling("cls")
    found, alone = evaluate(encoder, data, versus=other, bytes=4, resamples=50), evaluate(other, data, resamples=50)
    row = found.rows[found.versus]
    assert row.name == encoder.name.rpartition("/")[2]
    assert row.scores == alone.rows[0].scores
    assert row.versus_raw.value == pytest.approx(alone.score - found.score)
    assert row.name in found.verdict


def test_an_encoder_does_not_differ_from_itself(encoder, pairs):
    found = evaluate(encoder, pairs, versus=encoder, resamples=50)
    assert found.rows[found.versus].versus_own == (0, (0, 0))
    assert "do not differ" in found.verdict


def test_the_own_head_is_the_score(encoder, pairs):
    whitening = Whitening(n_components=8).fit(encoder.encode([f"{i} plans" for i in range(100)]))
    small = encoder.with_whitening(whitening)
    coded = small.with_code(SpectrumCode(bytes=4).fit(whitening))
    found = evaluate(coded, pairs, resamples=50)
    assert [row.name for row in found.rows] == ["raw", "whitened", "coded", "TF-IDF", "BM25"]
    assert (found.own, found.score) == (2, found.rows[2].scores["spearman"])
    against = evaluate(coded, pairs, versus=encoder, resamples=50)
    other, lead = against.rows[against.versus], against.rows[0].scores["spearman"] - against.score
    assert other.versus_own.value == pytest.approx(lead), "the whole folder is compared, not its raw vectors"
    assert against.verdict.startswith("Coded vectors and ")
    assert "smaller form" not in against.verdict, "which was not asked for"
    with pytest.raises(InputError, match="already includes a whitening"):
        evaluate(small, pairs, k=4)
    with pytest.raises(InputError, match="pass sentences"):
        evaluate(encoder, ScoredPairs(np.eye(3), np.eye(3), np.arange(3.0)), bytes=4)


def evaluation(*rows, **counts):
    space = Space(model="m", pooling="mean", max_length=32, dtype="float32", engine="jax")
    return Evaluation("", counts or {"pairs": 9}, rows, 0, "", "cosine", space, 10, 0)


def row(name, size, value, low=None, high=None):
    change = NO_CHANGE if low is None else Change(value, Interval(low, high))
    return Row(name, 8, size, {"spearman": 50 + value}, {"spearman": Interval(40.0, 60.0)}, change, change)


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([row("TF-IDF", None, -9.0, -12.0, -6.0)], "Raw vectors beat TF-IDF by 9.00 (6.00 to 12.00)."),
        (
            [row("BM25", None, 9.0, 6.0, 12.0)],
            "BM25 beats raw vectors by 9.00 (6.00 to 12.00): use it, or a fine-tuned encoder.",
        ),
        (
            [row("BM25", None, 1.0, -6.0, 12.0)],
            "Raw vectors and BM25 do not differ significantly: +1.00 (-6.00 to +12.00) on 9 pairs, about 730 would"
            " decide 1.00.",
        ),
        ([row("whitened", 400, 1.0, 0.5, 2.0)], "Whitened vectors gain: +1.00 (+0.50 to +2.00)."),
        ([row("whitened", 400, -1.0, -2.5, -0.1)], "Whitened vectors lose: -1.00 (-2.50 to -0.10)."),
        (
            [row("int8", 100, 0.0, -0.1, 0.1), row("code", 50, -0.5, -2.5, 1.5)],  # which may lose more than a point
            "Int8 vectors of 100 bytes, 1/4 of float32, lose nothing, or less than 1 point: +0.00 (-0.10 to +0.10).",
        ),
        (
            [row("int8", 100, 0.0, -0.1, 0.1), row("code", 50, 3.0, 1.0, 5.0)],
            "Codes of 50 bytes, 1/8 of float32, gain: +3.00 (+1.00 to +5.00).",
        ),
        (
            [row("code", 50, -3.0, -9.0, -1.5)],
            "Every smaller form loses, codes of 50 bytes the least: -3.00 (-9.00 to -1.50).",
        ),
        (
            [row("code", 50, -3.0, -9.0, 2.0), row("BM25", None, 9.0, 6.0, 12.0)],  # what was asked, not words
            "No smaller form surely loses less than 1 point; the closest are codes of 50 bytes: -3.00 (-9.00 to"
            " +2.00).",
        ),
        (
            [row("hybrid", 400, 9.0, 6.0, 12.0), row("BM25", None, -9.0, -12.0, -6.0)],
            "Raw vectors beat BM25 by 9.00 (6.00 to 12.00). Hybrid beats raw vectors by 9.00 (6.00 to 12.00): use"
            " `hybrid`.",
        ),
        ([row("TF-IDF", None, float("nan"), float("nan"), float("nan"))], ""),
    ],
)
def test_the_verdict_follows_the_intervals(others, verdict):
    found = evaluation(row("raw", 400, 0.0), *others)
    assert found.verdict == verdict
    assert str(found).endswith(found.verdict)


@pytest.mark.parametrize("found", [89.0, 94.0])
@pytest.mark.parametrize("queries", ["queries", "held-out documents as queries"])
def test_the_verdict_on_the_loss_follows_the_interval(found, queries):
    ends, change = Interval(found - 1, found + 1), Change(found - 100, Interval(found - 102, found - 98))
    code = Row("whitened code", 8, 96, {SHARE: found, ERROR: 1.5}, {SHARE: ends}, change)
    raw = Row("raw", 8, 1536, {SHARE: 100.0, ERROR: 0.0}, {SHARE: Interval(100, 100)})
    verdict = evaluation(raw, code, documents=9_700, **{queries: 300}).verdict
    assert verdict.startswith("Whitened codes of 96 bytes, 1/16 of" if found > 92 else "No code surely finds 90%")
    assert "among these 9,700 documents" in verdict
    assert ("1 to 9 points less" in verdict) == (queries != "queries")


def test_a_few_items_of_which_none_changed_decide_nothing():
    rows = row("raw", 400, 0.0), row("int8", 100, 0.0, 0.0, 0.0)
    assert evaluation(*rows, pairs=299).verdict.startswith("No smaller form surely loses less")
    assert "lose nothing" in evaluation(*rows, pairs=300).verdict


def test_two_labels_are_separated(encoder, pairs):
    labels = (pairs.score > 2.5).astype(float)
    found = evaluate(
        encoder, (pairs.sentence1, pairs.sentence2, labels), versus=encoder.with_pooling("cls"), resamples=200
    )
    assert list(found.rows[0].scores) == ["average_precision", "roc_auc"]
    assert math.isnan(found.spearman)
    for row in found.rows:
        for measure, (low, high) in row.intervals.items():
            assert low < row.scores[measure] < high
    assert "average precision" in str(found)


def test_scores_of_two_labels():
    """Against their definitions, with ties: pairs of equal similarity share their place."""
    rng = np.random.default_rng(0)
    similarity, labels = rng.integers(0, 6, 40) / 5, rng.integers(0, 2, 40)
    counts = np.stack([np.ones(40, int), rng.integers(0, 3, 40)], axis=1)
    precision, area = binary_scores(similarity, labels, counts)
    for row, (x, y) in enumerate((np.repeat(similarity, c), np.repeat(labels, c)) for c in counts.T):
        ahead = x[y == 1][:, None] - x[y == 0]
        assert area[row] == pytest.approx(((ahead > 0) + (ahead == 0) / 2).mean())
        expected = [y[x >= value].mean() for value in x[y == 1]]
        assert precision[row] == pytest.approx(np.mean(expected))


def test_every_measure_is_shown_with_its_unit():
    scores = {"ndcg_at_10": 50.0, "mrr_at_10": 51.0, "recall_at_100": 53.0}
    found = evaluation(Row("raw", 8, 32, scores, {"ndcg_at_10": Interval(40.0, 60.0)}))
    above, _, head, cells = str(found).splitlines()
    assert above == "9 pairs; m, float32 by jax. Scores × 100"
    assert " ".join(head.split()) == "dims bytes nDCG@10 95% CI MRR@10 recall@100 vs. raw"
    assert " ".join(cells.split()) == "raw 8 32 50.00 40.00–60.00 51.00 53.00"
    assert f" 50.00 [40.00, 60.00]; {above})" in repr(found)
    assert "Spearman × 100" in str(evaluation(row("raw", 400, 0.0)))
