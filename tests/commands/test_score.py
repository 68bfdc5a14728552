"""`jaxwhiten score`: one's own pairs, with a header or without, and searches; raw, whitened and coded vectors."""

import json

import pytest

from jaxwhiten import Encoder, evaluate
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import Pairs, load_sts
from jaxwhiten.views import View
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

    def write(name, first="sentence1\tsentence2\tscore", between="\t"):
        rows = zip(pairs.sentence1, pairs.sentence2, pairs.score, strict=True)
        lines = [between.join((f'"{a}"', f'"{b}"', str(s)) if between == "," else (a, b, str(s))) for a, b, s in rows]
        (tmp_path / name).write_text("\n".join([first.replace("\t", between), *lines]) + "\n")
        return tmp_path / name

    return write


def test_raw_and_whitened(run, tiny_model, table, pairs):
    done = run("score", table("p.csv", between=","), "--model", tiny_model, "--pooling", "mean", "-k", 8, "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    expected = evaluate(Encoder.from_pretrained(tiny_model, pooling="mean"), pairs, k=8)
    for row, own in zip(report["rows"], expected.rows, strict=True):
        assert (row["name"], row["dimensions"], row["bytes"]) == (own.name, own.dimensions, own.bytes)
        assert row["scores"] == pytest.approx(own.scores, abs=1e-4)
    assert [row["name"] for row in report["rows"]] == ["raw", "whitened", "TF-IDF", "BM25"]
    assert "without their scores" in report["fitted_on"]
    assert report["verdict"]


@pytest.mark.slow
def test_every_sentence_is_encoded_once(run, tiny_model, table, tmp_path, monkeypatch):
    encoder, encoded = Encoder.from_pretrained(tiny_model, pooling="mean"), []
    whitening = Whitening(n_components=16).fit(encoder.encode([f"{i} plans" for i in range(300)]))
    encoder.with_whitening(whitening).with_code(SpectrumCode(bytes=8).fit(whitening)).save(tmp_path / "small")
    encode = View.__call__

    def counted(self, texts, **how):
        encoded.extend(texts)
        return encode(self, texts, **how)

    monkeypatch.setattr(View, "__call__", counted)
    for model, pooling in ((tiny_model, "mean"), (tmp_path / "small", "auto")):
        encoded.clear()
        done = run("score", table("p.tsv"), "--model", model, "--pooling", pooling, "--no-cache")
        assert done.code == 0, done.err
        assert len(encoded) == len(set(encoded)) > 60


@pytest.mark.slow
def test_score_and_fit_show_what_codes_lose(run, tmp_path):
    task = load_sts("sts_sample").splits["test"]
    sides = list(dict.fromkeys(task.sentence1)), list(dict.fromkeys(task.sentence2))[:80]
    (docs := tmp_path / "docs.txt").write_text("\n".join(sides[0]) + "\n")
    (table := tmp_path / "docs.csv").write_text("id,text\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(sides[0])))
    (asked := tmp_path / "queries.txt").write_text("\n".join(sides[1]) + "\n")
    model = ("--model", "jaxwhiten-tiny", "--pooling", "mean", "--tuned")
    report = json.loads(run("score", docs, "--queries", asked, "--bytes", 24, *model, "--json").out)
    assert [row["name"] for row in report["rows"]] == ["raw", "int8", "binary", "code"]
    assert (report["measure"], report["counts"]["queries"]) == ("float32_recall_at_10", 80)
    alone = json.loads(run("score", table, "--bytes", 24, *model, "--json").out)
    done = run("fit", docs, "--bytes", 24, *model, "-o", tmp_path / "small", "--json")
    assert done.code == 0, done.err
    assert [row["scores"] for row in json.loads(done.out)["loss"]] == [
        pytest.approx(row["scores"], abs=0.3) for row in alone["rows"]
    ]
    assert Encoder.from_pretrained(tmp_path / "small").view.code.provenance["n"] == len(sides[0])
