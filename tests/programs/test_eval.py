"""The other evaluations once, on a tiny encoder: the rows of each, the figures that `evaluate` has, too, and tables."""

import json
from functools import partial

import pytest

from configs.settings import BEIR, Codes, Hybrid
from eval import beir, codes, hybrid
from eval.runs import Run
from jaxwhiten import Encoder, evaluate
from jaxwhiten.errors import DataNotFoundError
from tests.conftest import own_cache
from tests.programs.runs import write_questions
from tests.sentences import generated

pytestmark = pytest.mark.filterwarnings("ignore:.*(specifies no pooling|was fitted on)")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return own_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def finished(tiny_model, cache, tmp_path, monkeypatch):
    """Runs a program on question pairs, with changed settings, and loads what it wrote."""
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", cache)
    pairs = str(write_questions(tmp_path / "pairs.tsv", 400))

    def run(program, config, **changes):
        out = tmp_path / "out"
        changes = {"model": str(tiny_model), "bootstrap": 50, "out": str(out)} | changes
        config.update(changes if program is beir else changes | {"dataset": pairs, "pooling": "mean"})
        program.main(config)
        run = Run.load(out)
        assert run.header.complete
        assert (out / "results.md").stat().st_size > 200
        return run

    return partial(run)


def test_codes_are_compared_with_float32_and_with_the_spectrum_code(finished, tmp_path):
    names = "pq,spectrum,truncated,ubinary"
    run = finished(codes, Codes(), bytes="4,8", codes=names, seeds=2, rescore=20, gamma="none,1")
    sized = [(name, size) for name in ("spectrum", "pq", "truncated") for size in (4, 8)]
    rows = [
        (None, "float32", 128),
        *((None, *row) for row in [*sized, ("ubinary", 4)]),
        *((1.0, *row) for row in sized),
    ]
    assert [(row.gamma, row.code, row.bytes) for row in run.rows] == rows
    raw, *others = run.rows
    spectra = {(row.gamma, row.bytes): row.mrr_at_10 for row in others if row.code == "spectrum"}
    for row in others:
        assert row.versus_raw.value == pytest.approx(100 * (row.mrr_at_10 - raw.mrr_at_10), abs=1e-9)
        if row.code == "spectrum":
            assert 0 < row.bound < row.distortion < 1
        else:
            lead = 100 * (row.mrr_at_10 - spectra[row.gamma, row.bytes])
            assert row.versus_spectrum.value == pytest.approx(lead, abs=1e-9)
    best = {row.code: row.float32_recall_at_10 for row in others if row.bytes == 8 and row.gamma is None}
    assert best["spectrum"] > 0
    assert codes.TABLES["tasks_table"](run).rows[0][2] == f"{100 * raw.mrr_at_10:.2f}"
    assert codes.TABLES["rivals_table"](run).rows[-1][0] == "mean"
    assert (tmp_path / "out" / "quality_by_bytes.png").stat().st_size > 10_000


def test_both_together_find_what_words_find(finished):
    run = finished(hybrid, Hybrid(), bytes="0,8")
    for size in (0, 8):
        vectors, words, both = (row for row in run.rows if row.bytes == size)
        assert vectors.ndcg_versus == {"value": 0.0, "low": 0.0, "high": 0.0}
        assert words.ndcg_at_10.value > 50  # duplicates are the same words in another order
        assert both.ndcg_versus.value == pytest.approx(both.ndcg_at_10.value - vectors.ndcg_at_10.value)
    assert len(hybrid.hybrid_table(run).rows) == 2


def test_every_beir_folder_is_scored_as_by_the_command(finished, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(beir, "BYTES", (4,))
    monkeypatch.setattr(beir, "PCA", 8)
    texts = generated(40)
    for number, name in enumerate(("first", "parts/a")):
        folder, subset = tmp_path / "beir" / name, texts[20 * number : 20 * number + 20]
        (folder / "qrels").mkdir(parents=True)
        documents = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(subset)]
        queries = [json.dumps({"_id": f"d{i}", "text": subset[i]}) for i in range(5)]
        (folder / "corpus.jsonl").write_text("\n".join(documents))
        (folder / "queries.jsonl").write_text("\n".join(queries))
        judged = [f"d{i}\td{i + 5}\t1" for i in range(5)]
        (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    run = finished(beir, BEIR(), data_dir=str(tmp_path / "beir"))
    assert list(dict.fromkeys(row.data for row in run.rows)) == ["first", "parts/a"]
    expected = evaluate(Encoder.from_pretrained(tiny_model), tmp_path / "beir" / "first", bytes=4)
    rows = [row for row in run.rows if row.data == "first"]
    assert (rows[0].documents, rows[0].cut) == (20, 0)
    assert [row.scores for row in rows[:-1]] == [pytest.approx(row.scores, abs=1e-3) for row in expected.rows]
    with pytest.raises(DataNotFoundError, match="no BEIR folder"):
        finished(beir, BEIR(), data_dir=str(tmp_path / "out"))
