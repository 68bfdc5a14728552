"""The other evaluations once, on a tiny encoder: their rows, and the figures that `evaluate` has, too."""

import json

import pytest

from configs.settings import BEIR, Codes, Hybrid
from eval import beir, codes, hybrid
from eval.runs import Run
from jaxwhiten import Encoder, evaluate
from tests.programs.runs import write_questions
from tests.sentences import generated

pytestmark = pytest.mark.filterwarnings("ignore:.*(specifies no pooling|was fitted on)")


@pytest.fixture
def finished(tiny_model, tmp_path, fresh_cache):
    """Runs a program with changed settings, and loads what it wrote."""

    def run(program, config, **changes):
        config.update({"model": str(tiny_model), "bootstrap": 50, "out": str(tmp_path / "out")} | changes)
        program.main(config)
        assert (tmp_path / "out" / "results.md").stat().st_size > 200
        return Run.load(tmp_path / "out").rows

    return run


@pytest.fixture
def questions(tmp_path):
    return {"dataset": str(write_questions(tmp_path / "pairs.tsv", 400)), "pooling": "mean"}


def test_codes_are_compared_with_float32_and_with_the_spectrum_code(finished, questions, tmp_path):
    raw, *rows = finished(
        codes, Codes(), bytes="4,8", codes="pq,spectrum,ubinary", seeds=2, rescore=20, gamma="none,1", **questions
    )
    sized = [(name, size) for name in ("spectrum", "pq") for size in (4, 8)]
    expected = [(None, *row) for row in (*sized, ("ubinary", 4))] + [(1.0, *row) for row in sized]
    assert (raw.code, raw.bytes) == ("float32", 128)
    assert [(row.gamma, row.code, row.bytes) for row in rows] == expected
    spectra = {(row.gamma, row.bytes): row.mrr_at_10 for row in rows if row.code == "spectrum"}
    for row in rows:
        assert row.versus_raw.value == pytest.approx(100 * (row.mrr_at_10 - raw.mrr_at_10), abs=1e-9)
        if row.code == "spectrum":
            assert 0 < row.bound < row.distortion < 1
        else:
            lead = 100 * (row.mrr_at_10 - spectra[row.gamma, row.bytes])
            assert row.versus_spectrum.value == pytest.approx(lead, abs=1e-9)
    assert (tmp_path / "out" / "quality_by_bytes.png").stat().st_size > 10_000


def test_both_together_find_what_words_find(finished, questions):
    vectors, words, both = finished(hybrid, Hybrid(), bytes="8", **questions)
    assert words.ndcg_at_10.value > 50  # duplicates are the same words in another order
    assert both.ndcg_versus.value == pytest.approx(both.ndcg_at_10.value - vectors.ndcg_at_10.value)


def test_a_beir_folder_is_scored_as_by_evaluate(finished, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(beir, "BYTES", (4,))
    monkeypatch.setattr(beir, "PCA", 8)
    folder, texts = tmp_path / "beir" / "parts" / "a", generated(20)
    (folder / "qrels").mkdir(parents=True)
    documents = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(documents))
    (folder / "queries.jsonl").write_text("\n".join(documents[:5]))
    judged = [f"d{i}\td{i + 5}\t1" for i in range(5)]
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    rows = finished(beir, BEIR(), data_dir=str(tmp_path / "beir"))
    expected = evaluate(Encoder.from_pretrained(tiny_model), folder, bytes=4)
    assert (rows[0].data, rows[0].documents, rows[0].cut) == ("parts/a", 20, 0)
    assert [row.scores for row in rows[:-1]] == [pytest.approx(row.scores, abs=1e-3) for row in expected.rows]
