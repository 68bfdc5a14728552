"""`jaxwhiten score`: one's own pairs, with a header or without; raw, whitened and coded vectors beside each other."""

import json
import re

import numpy as np
import pytest

from jaxwhiten import Encoder, evaluate
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.commands import score
from jaxwhiten.datasets import Pairs, load_sts
from jaxwhiten.whitening import Whitening

pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")  # few sentences


@pytest.fixture(scope="module")
def pairs():
    found = load_sts("sts_sample").splits["test"]
    found.sentence2[0] = found.sentence1[0]  # which is no header with one name twice
    return Pairs(*(column[:60] for column in (found.sentence1, found.sentence2, found.score, found.subset)))


@pytest.fixture
def table(pairs, tmp_path):
    """Writes the first pairs as a table with this first line."""

    def write(name, first="", between="\t"):
        rows = zip(pairs.sentence1, pairs.sentence2, pairs.score, strict=True)
        lines = [between.join((f'"{a}"', f'"{b}"', str(s)) if between == "," else (a, b, str(s))) for a, b, s in rows]
        (tmp_path / name).write_text("\n".join([first] * bool(first) + lines) + "\n")
        return tmp_path / name

    return write


def test_raw_beside_whitened(run, tiny_model, table, pairs):
    done = run("score", table("p.csv", between=","), "--model", tiny_model, "--pooling", "mean", "-k", 8, "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    texts = list(dict.fromkeys([*pairs.sentence1, *pairs.sentence2]))
    for name, way in {"raw": encoder, "whitened": encoder.whiten(texts, k=8)}.items():
        expected, row = evaluate(way, pairs), report["rows"][name]
        assert row["spearman"] == pytest.approx(expected.spearman, abs=1e-4)
        assert row["interval"] == pytest.approx(list(expected.interval), abs=1e-4)
        assert row["width"] == way.dimension
        if name != "raw":
            gain = row["spearman"] - report["rows"]["raw"]["spearman"]
            assert row["versus_raw"]["value"] == pytest.approx(gain)
            assert row["versus_raw"]["interval"][0] < gain < row["versus_raw"]["interval"][1]
    assert list(report["rows"]) == ["raw", "whitened", "tfidf"]
    assert "without their scores" in report["fitted_on"]


@pytest.mark.parametrize("first", ["", "sentence1\tsentence2\tscore", "one\ttwo\tgold"])
def test_a_table_with_a_header_or_without(run, tiny_model, table, pairs, first):
    done = run("score", table("p.tsv", first), "--model", tiny_model, "--pooling", "mean", "-k", 8)
    assert done.code == 0, done.err
    assert f"{len(pairs):,} pairs" in done.out
    assert [line.split()[0] for line in done.out.splitlines()[3:]] == ["raw", "whitened", "tfidf"]


def test_tfidf_is_that_of_scikit_learn():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    texts = ["A dog, a DOG and 2 cats.", "dogs bark", "", "the cat sat: the cat ran", "a cat"]
    x = text.TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+").fit_transform(texts)
    words = score.tfidf(texts)
    np.testing.assert_allclose((words @ words.T).toarray(), (x @ x.T).toarray(), atol=1e-12)


def test_equal_rows_have_no_difference(run, tiny_model, table):
    done = run("score", table("p.tsv"), "--model", tiny_model, "--pooling", "mean", "--beta", 0, "--gamma", 0, "--json")
    versus = json.loads(done.out)["rows"]["whitened"]["versus_raw"]
    assert (versus["value"], *versus["interval"]) == pytest.approx(
        (0, 0, 0), abs=0.05
    )  # paired: a rotation changes nothing


def test_a_folder_that_ends_with_a_code(run, tiny_model, table, pairs, tmp_path):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    whitening = Whitening(n_components=16).fit(
        encoder.encode(pairs.sentence1),
    )
    coded = encoder.with_code(SpectrumCode(bytes=8).fit(whitening))
    coded.save(tmp_path / "coded")
    path = table("p.tsv")
    report = json.loads(run("score", path, "--model", tmp_path / "coded", "--json").out)
    assert {name: row["width"] for name, row in report["rows"].items()} == {
        **{"raw": 32, "whitened": 16, "coded": 8},
        "tfidf": len(
            {w for side in (pairs.sentence1, pairs.sentence2) for s in side for w in re.findall(r"\w+", s.lower())}
        ),
    }
    raw, whitened = (report["rows"][name]["spearman"] for name in ("raw", "whitened"))
    assert raw == pytest.approx(evaluate(encoder, pairs).spearman, abs=0.01)
    assert whitened == pytest.approx(evaluate(coded.without_code(), pairs).spearman, abs=0.01)
    done = run("score", path, "--model", tmp_path / "coded", "-k", 4)
    assert done.code == 2
    assert "has a whitening of its own" in done.err


def test_a_score_that_is_not_a_number(run, tiny_model, tmp_path):
    (tmp_path / "p.csv").write_text("a,b,1\nc,d,high\n")
    done = run("score", tmp_path / "p.csv", "--model", "absent")
    assert (done.code, done.err) == (2, f"error: {tmp_path}/p.csv, line 2: the score 'high' is not a number.\n")


def test_a_sentence_that_is_a_number(run, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"sentence1": "a", "sentence2": 3, "score": 1}\n')
    done = run("score", tmp_path / "p.jsonl", "--model", "absent")
    assert (done.code, done.err) == (2, f"error: {tmp_path}/p.jsonl, line 1: sentence2 is 3, not text.\n")


def test_columns_that_are_not_there(run, tmp_path):
    (tmp_path / "p.csv").write_text("one,two,gold,more\na,b,1,2\n")
    done = run("score", tmp_path / "p.csv", "--model", "absent")
    assert (done.code, "no column 'sentence1'" in done.err) == (2, True)


def test_every_sentence_is_encoded_once(run, tiny_model, table, tmp_path, monkeypatch):
    encoder, encoded = Encoder.from_pretrained(tiny_model, pooling="mean"), []
    whitening = Whitening(n_components=16).fit(encoder.encode([f"{i} plans" for i in range(300)]))
    encoder.with_code(SpectrumCode(bytes=8).fit(whitening)).save(tmp_path / "small")
    encode = Encoder.encode

    def counted(self, texts, **how):
        encoded.extend(texts)
        return encode(self, texts, **how)

    monkeypatch.setattr(Encoder, "encode", counted)
    for model, pooling in ((tiny_model, "mean"), (tmp_path / "small", "auto")):
        encoded.clear()
        done = run("score", table("p.tsv"), "--model", model, "--pooling", pooling)
        assert done.code == 0, done.err
        assert len(encoded) == len(set(encoded)) > 60
