"""`python -m eval.beir` on folders in BEIR's form, and the tables of MTEB's tasks."""

import json
import sys

import numpy as np
import pytest

from eval import beir, mteb
from eval.runs import Run
from jaxwhiten import Encoder, evaluate
from tests.conftest import own_cache
from tests.sentences import generated


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two data sets, one of which has two parts; a query's id is that of a document."""
    root, texts = tmp_path_factory.mktemp("beir"), generated(60)
    for number, name in enumerate(("first", "parts/a", "parts/b")):
        folder, subset = root / name, texts[20 * number : 20 * number + 20]
        (folder / "qrels").mkdir(parents=True)
        documents = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(subset)]
        queries = [json.dumps({"_id": f"d{i}", "text": subset[i]}) for i in range(5)]
        judged = [f"d{i}\td{i + 5}\t1" for i in range(5)]
        (folder / "corpus.jsonl").write_text("\n".join(documents))
        (folder / "queries.jsonl").write_text("\n".join(queries))
        (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return root


@pytest.mark.filterwarnings("ignore:.*(specifies no pooling|was fitted on)")
def test_every_folder_is_scored_as_by_the_command(folders, tiny_model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(beir, "BYTES", (4,))
    monkeypatch.setattr(beir, "PCA", 8)
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    out = tmp_path / "beir.jsonl"
    monkeypatch.setattr(sys, "argv", ["beir", str(folders), "--model", f"tiny={tiny_model}", "-o", str(out)])
    beir.program("eval.beir", beir.__doc__, beir.searches)
    run = Run.load(out)
    assert run.header.complete
    assert list(dict.fromkeys(row["data"] for row in run.rows)) == ["first", "parts/a", "parts/b"]
    expected = evaluate(Encoder.from_pretrained(tiny_model), folders / "first", bytes=4)
    rows = [row for row in run.rows if row["data"] == "first"]
    assert (rows[0]["documents"], rows[0]["cut"]) == (20, 0)
    assert [row["scores"] for row in rows if row["name"] != "PCA"] == [
        pytest.approx(row.scores, abs=1e-3) for row in expected.rows
    ]
    raw = [row["scores"]["ndcg_at_10"] for row in run.rows if row["name"] == "raw"]
    assert "2 data sets" in capsys.readouterr().out
    table = beir.scores_table(run).rows
    means = {row[2]: row[4] for row in table if row[0] == "2 data sets"}
    assert means["raw"] == f"{(raw[0] + (raw[1] + raw[2]) / 2) / 2:.1f}"
    assert [row[1:3] for row in table if row[0] == "first" and not row[3]] == [["words", "TF-IDF"], ["words", "BM25"]]


def test_local_rows_of_mtebs_tasks_and_few_rows_of_each_class(tmp_path):
    (folder := tmp_path / "classification/banking77").mkdir(parents=True)
    for split in ("train", "test"):
        (folder / f"{split}.csv").write_text('text,category\n"two\nlines",b\none,a\n')
    (tmp_path / "sts_zh").mkdir()
    (tmp_path / "sts_zh/STS-B.test.data").write_text("女孩\t男孩\t2\n")
    tasks = dict(mteb.read(tmp_path))
    assert tasks[mteb.BANKING]["test"] == {"text": ["two\nlines", "one"], "label": [1, 0]}
    assert tasks[mteb.STS]["test"] == {"sentence1": ["女孩"], "sentence2": ["男孩"], "score": [2.0]}
    x = np.repeat(np.eye(2), 20, axis=0) + 0.01 * np.random.default_rng(0).standard_normal((40, 2))
    splits = {split: {"label": [0] * 20 + [1] * 20} for split in ("train", "test")}
    assert mteb.accuracy(x, x, splits) == 100


@pytest.mark.filterwarnings("ignore:.*(specifies no pooling|was fitted on)")
def test_tasks_are_scored_raw_and_whitened(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    (tmp_path / "sts_zh").mkdir()
    texts = generated(40)
    pairs = [(texts[2 * i], texts[2 * i + 1], float(i % 6)) for i in range(20)]
    lines = [f"{first}\t{second}\t{score}" for first, second, score in pairs]
    (tmp_path / "sts_zh/STS-B.test.data").write_text("\n".join(lines))
    encoder = Encoder.from_pretrained(tiny_model)
    ((task, rows),) = mteb.tasks(tmp_path, str(tiny_model), encoder, check=False)
    assert (task, [row["name"] for row in rows]) == (mteb.STS, ["raw", "whitened, γ = 0.25", "whitened, γ = 1"])
    raw, *_ = evaluate(encoder, tuple(zip(*pairs, strict=True))).rows
    assert rows[0]["scores"]["spearman"] == pytest.approx(raw.scores["spearman"], abs=1e-3)
    assert len({row["scores"]["spearman"] for row in rows}) == 3
