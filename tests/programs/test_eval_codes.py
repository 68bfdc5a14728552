"""`python -m eval.codes` from question pairs to its table and plot; the figures held against plain NumPy."""

import numpy as np
import pytest

from configs import codes as settings
from eval import codes, tables
from jaxwhiten import Encoder, Moments, Whitening, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import InputError
from jaxwhiten.report import Run
from tests.programs.test_eval_retrieval import generate


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """A folder with a finished run, runs/tiny."""
    folder = tmp_path_factory.mktemp("codes")
    text = folder / "text.txt"
    text.write_text("".join(f"Passage {i} is about {i % 7} things. More of it.\n" for i in range(400)))
    config = settings.get_config()
    config.update({"model": str(tiny_model), "dataset": str(generate(folder / "pairs.tsv", 500)), "queries": 100})
    config.update({"outside": str(text), "bytes": "4,8", "codes": "spectrum,pq,sq8,ubinary,pca", "rescore": 20})
    config.update({"bootstrap": 100, "cache": str(folder / "cache"), "out": str(folder / "runs" / "tiny")})
    codes.main(config)
    return folder


def test_the_rows(folder):
    run = Run.load(folder / "runs" / "tiny")
    found = [(row.whitening, row.code, row.bytes) for row in run.rows]
    of_fit = [("spectrum", 4), ("spectrum", 8), ("pq", 4), ("pq", 8), ("sq8", 4), ("sq8", 8), ("ubinary", 4)]
    of_fit += [("pca", 4), ("pca", 8)]
    fits = ("documents", "outside")
    assert found == [("none", "float32", 128), *((fit, code, size) for fit in fits for code, size in of_fit)]
    assert run.header.complete
    assert all(row.versus_raw.low <= row.versus_raw.value <= row.versus_raw.high for row in run.rows[1:])
    difference = 100 * (run.rows[1].mrr_at_10 - run.rows[0].mrr_at_10)
    assert run.rows[1].versus_raw.value == pytest.approx(difference, abs=1e-9)


def test_the_figures_are_those_of_plain_numpy(folder, tiny_model):
    config = settings.get_config()
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)
    data = codes.load_retrieval(str(folder / "pairs.tsv"))
    scored = np.flatnonzero(np.diff(data.gold.indptr))
    chosen = scored[np.linspace(0, len(scored) - 1, 100).astype(int)]
    documents, queries = encoder.encode(data.documents), encoder.encode([data.queries[i] for i in chosen])
    gold = [set(data.gold.ids[slice(*data.gold.indptr[i : i + 2])]) for i in chosen]
    moments = Moments().update(documents)
    whitening = Whitening.from_moments(moments, gamma=SpectrumCode.usual_gamma(moments))
    code = SpectrumCode(bytes=8).fit(whitening)
    decoded, asked = code.decode(code.encode(documents)), normalize(code.transform(queries))
    nearest = np.argsort(((asked[:, None] - decoded[None]) ** 2).sum(-1), axis=1, kind="stable")[:, :10]
    ranks = [
        next((1 / (i + 1) for i, d in enumerate(row) if d in right), 0.0)
        for row, right in zip(nearest, gold, strict=True)
    ]
    run = Run.load(folder / "runs" / "tiny")
    (row,) = [row for row in run.rows if (row.whitening, row.code, row.bytes) == ("documents", "spectrum", 8)]
    assert row.mrr_at_10 == pytest.approx(np.mean(ranks), abs=0.01)  # documents of equal codes are ties
    assert config.pooling == run.header.config["pooling"]


def test_the_table_is_made_from_what_is_kept(folder, monkeypatch):
    monkeypatch.chdir(folder)
    page = folder / "page.md"
    page.write_text("<!-- table tiny bytes_table plain -->\n<!-- end -->\n")
    assert tables.fill(page) == []
    lines = page.read_text().splitlines()
    assert "| fitted on | code | 4 B | 8 B |" in lines
    assert sum(line.startswith("| outside | spectrum |") for line in lines) == 1
    files = {path.name for path in (folder / "runs" / "tiny").iterdir()}
    assert {"results.json", "run.json", "results.md", "report.html", "quality_by_bytes.png"} <= files


def test_mistakes_are_named(folder, tiny_model):
    config = settings.get_config()
    config.update({"model": str(tiny_model), "codes": "spectrm", "out": str(folder / "other")})
    with pytest.raises(InputError, match="spectrum"):
        codes.main(config)
