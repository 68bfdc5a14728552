"""What codes lose of float32's first ten, without judgments: the share computed by NumPy from vectors and codes."""

import numpy as np
import pytest

from jaxwhiten import Encoder, evaluate, load_sts
from jaxwhiten.codes import Int8, UBinary
from jaxwhiten.errors import InputError
from jaxwhiten.metrics.bootstrap import means, percentile_interval, resamples
from jaxwhiten.scoring import Unjudged, evaluation
from jaxwhiten.scoring.result import ERROR, SHARE
from tests.conftest import slow_but

pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")  # few texts


@pytest.fixture(scope="module")
def encoder():
    return Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", max_length=32, tuned=True)


@pytest.fixture(scope="module")
def sides():
    pairs = load_sts("sts_sample").splits["test"]
    return list(dict.fromkeys(pairs.sentence1))[:150], list(dict.fromkeys(pairs.sentence2))[:40]


def first_ten(scores):
    return np.argsort(-scores, axis=1, kind="stable")[:, :10]


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("whitened", slow_but([False, True], False))
def test_equal_to_the_shares_of_vectors_and_codes(encoder, sides, whitened, monkeypatch):
    monkeypatch.setattr(evaluation, "_HELD", 4000)  # a few queries at once
    documents, queries = sides
    how = {"gamma": 0.5} if whitened else {}
    result = evaluate(encoder, documents, queries=queries, bytes=8, **how)
    base = encoder.whiten(documents, gamma=0.5) if whitened else encoder
    x, q = base.encode(documents), unit(base.encode(queries))
    codes = [Int8().fit(x), UBinary().fit(x), encoder.shrink(documents, bytes=8, **how).view.code]
    cosines = q @ unit(x).T
    names = [f"{'whitened ' * whitened}{name}" for name in ("int8", "binary", "code")]
    assert [row.name for row in result.rows] == ["whitened" if whitened else "raw", *names]
    for row, code in zip(result.rows[1:], codes, strict=True):
        scores = q @ unit(code.decode(code.encode(x))).T
        found = first_ten(scores)
        share = np.array([len({*a} & {*b}) / 10 for a, b in zip(found, first_ten(cosines), strict=True)])
        errors = np.abs(np.take_along_axis(scores - cosines, found, axis=1)).mean(axis=1)
        assert row.bytes == code.nbytes
        assert row.scores[SHARE] == pytest.approx(100 * share.mean(), abs=1e-6)
        assert row.scores[ERROR] == pytest.approx(100 * errors.mean(), abs=1e-3)
        drawn = resamples(means(100 * share), np.arange(len(share)))
        assert row.intervals[SHARE] == pytest.approx(percentile_interval(drawn, len(queries)), abs=1e-3)
    assert result.rows[0].scores == pytest.approx({SHARE: 100, ERROR: 0}, abs=1e-3)
    assert result.counts == {"documents": len(documents), "queries": len(queries)}


def test_held_out_documents_serve_as_queries(encoder, sides):
    texts = [*sides[0], *sides[1], " ", sides[0][0]]
    data = Unjudged.of(texts)
    assert not {*data.documents} & {*data.queries}
    assert len(data.documents) + len(data.queries) == len({*texts}) - 1
    assert len(data.queries) == len({*texts}) // 10
    assert len(Unjudged.of(map(str, range(9000))).queries) == 300
    result = evaluate(encoder, texts, bytes=8, resamples=50)
    assert f"{len(data.queries)} held-out documents as queries" in str(result)
    assert "held-out documents" in result.verdict
    asked = evaluate(encoder, data.documents, queries=data.queries, bytes=8, resamples=50)
    assert asked.rows == result.rows
    assert "held-out" not in str(asked)


@pytest.mark.slow
def test_the_own_code_is_measured(encoder, sides):
    coded = encoder.shrink(sides[0], bytes=48)
    result = evaluate(coded, sides[0], queries=sides[1], resamples=500)
    assert [row.name for row in result.rows] == ["raw", "coded", "int8", "binary"]
    assert result.rows[1].bytes == 48
    whitened = encoder.shrink(sides[0], bytes=48, gamma=0.5)
    rows = evaluate(whitened, sides[0], queries=sides[1], bytes=24, resamples=500).rows
    assert [row.name for row in rows] == ["whitened", "coded", "whitened int8", "whitened binary", "whitened code"]


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        (["a dog"] * 30, {}, "1 different text, of which none can be held out: pass `queries`"),
        ([" ", ""], {"queries": ["a dog"]}, "only blank texts"),
        (["a dog", "rain"], {"queries": ["a dog"], "k": 4}, "omit `k`, or pass judgments"),
        (["a dog", "rain"], {"queries": ["a dog"], "corpus": ["snow"]}, "omit it for pairs"),
    ],
)
def test_refusals(encoder, data, how, message):
    with pytest.raises(InputError, match=message):
        evaluate(encoder, data, **how)


def test_fewer_than_ten_documents(encoder):
    result = evaluate(encoder, ["a dog", "rain", "snow in May"], queries=["a cat"], resamples=10)
    assert [row.scores[SHARE] for row in result.rows] == [100, 100, 100]
    assert result.verdict == "Too few to judge differences: 1 query; at least 6 are needed."
