"""Encoders on every BEIR folder below a folder: nDCG@10 of all sizes of vectors, and lexical baselines.

`python -m eval.beir --config.data_dir=DIR [--config.model=MODEL] [--config.check=True] [--config.out=runs/beir]`

The figures are those of `jaxwhiten score FOLDER --bytes 24 48 96` and `jaxwhiten score FOLDER -k 128 --gamma 0`. With
`check`, raw vectors are also scored by sentence-transformers and pytrec_eval.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from configs import launch
from configs.settings import BEIR
from eval import common, published
from eval.common import load_encoder, make_folder, say
from eval.driver import driven
from eval.report import Table, Views
from eval.runs import Record, Run
from jaxwhiten import Encoder, evaluate, io, scoring
from jaxwhiten.datasets import RetrievalData, read_own
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import DataNotFoundError

BYTES = (24, 48, 96)
PCA = 128


def evaluator(config: BEIR) -> Iterator[Run]:
    """The run after each folder: the forms of `evaluate`, with PCA."""
    make_folder(Path(config.out))
    folder = Path(config.data_dir)
    folders = sorted(path.parent for path in folder.rglob("corpus.jsonl"))
    if not folders:
        raise DataNotFoundError(f"{folder}: contains no BEIR folder: set config.data_dir.")
    encoder = load_encoder(config, "auto")
    label = config.model.rpartition("/")[2]
    encoding = common.encoding(0.0, 0, note="not timed")
    protocol = {"max_length": encoder.max_length, "prompts": encoder.prompts}
    run = Run(common.make_header("eval.beir", f"BEIR: {label}", config, encoder, encoding, protocol))
    yield run
    for corpus in folders:
        data = read_own(corpus)
        results = [*evaluate(encoder, data, bytes=BYTES, encode=stored).rows]
        results += evaluate(encoder, data, k=PCA, gamma=0.0, encode=stored).rows[1:2]
        rows: list[dict[str, Any]] = [io.to_json(row) for row in results]
        rows[0] |= {"documents": len(data.documents), "cut": encoder.documents.tokens(data.documents).cut}
        if config.check:
            rows[0]["theirs"] = by_sentence_transformers(config.model, data)
        rows[-1]["name"] = "PCA"
        name = folder.name if corpus == folder else corpus.relative_to(folder).as_posix()
        run.rows.extend(Record(row, encoder=label, data=name) for row in rows)
        say(f"{label}: {name}")
        yield run


def stored(encoder: Encoder, texts: list[str], role: str | None = None) -> np.ndarray:
    """The vectors of texts from the cache, with the prompt of their role."""
    vectors: np.ndarray = EmbeddingStore().encode(encoder.view.in_role(role), texts)
    return vectors


def by_sentence_transformers(model: str, data: RetrievalData) -> float:
    """nDCG@10 × 100 of a folder's vectors by sentence-transformers, computed by pytrec_eval."""
    import pytrec_eval
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model)
    data = data.with_gold()
    documents = encoder.encode_document(data.documents, normalize_embeddings=True)
    scores = encoder.encode_query(data.queries, normalize_embeddings=True) @ documents.T
    judged = {}
    for query, (start, end) in enumerate(zip(data.gold.indptr[:-1], data.gold.indptr[1:], strict=True)):
        grades = np.ones(end - start) if data.gold.grades is None else data.gold.grades[start:end]
        judged[f"{query}"] = {f"{i}": int(grade) for i, grade in zip(data.gold.ids[start:end], grades, strict=True)}
    best = data.others(scoring.best(scores, min(101, len(documents))))
    run = {f"{query}": {f"{i}": float(scores[query, i]) for i in ids} for query, ids in enumerate(best)}
    results = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10"}).evaluate(run)
    return 100 * fmean(values["ndcg_cut_10"] for values in results.values())


def scores_table(run: Run) -> Table:
    """Every form of the encoder by data set, with published figures."""
    references = {row.setting["model"]: row.figures for row in published.read("tasks")}
    cells = []
    for row in run.rows:
        words = row.bytes is None
        label = "words" if words else row.encoder
        score = next(iter(row.scores.values()))
        change = row.get("versus_raw")
        interval = "{:+.1f} to {:+.1f}".format(*change[1]) if change and None not in change[1] and not words else ""
        theirs = f"{row.theirs:.1f}" if row.get("theirs") else ""
        name = row.name if words else row.encoder if row.name == "raw" else ""
        reference = references.get(name, {}).get(row.data, "")
        size = "" if words else f"{row.bytes:,}"
        line = [row.data, label, row.name, size, f"{score:.1f}", interval, theirs, f"{reference}"]
        if line not in cells:
            cells.append(line)
    heads = ["data", "encoder", "vectors", "bytes", "ours", "− raw, 95%", "theirs", "published"]
    return Table(heads, cells, 3)


TABLES = {"scores_table": scores_table}
main = driven(evaluator, Views({"Scores": scores_table}, {}))

if __name__ == "__main__":
    launch.run(main, BEIR)
