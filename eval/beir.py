"""Encoders on every BEIR folder below a folder: nDCG@10 of all sizes of vectors, lexical baselines, and the means.

`python -m eval.beir DIR --model NAME=MODEL [--model ...] [--check] -o runs/beir.jsonl`

The figures are those of `jaxwhiten score FOLDER --bytes 24 48 96` and `jaxwhiten score FOLDER -k 128 --gamma 0`. With
--check, raw vectors are also scored by sentence-transformers and pytrec_eval.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from eval import published
from eval.common import say
from eval.report import Table
from eval.runs import Record, Run, header
from jaxwhiten import Encoder, evaluate, io, scoring
from jaxwhiten.datasets import RetrievalData, read_own
from jaxwhiten.encoding import EmbeddingStore

BYTES = (24, 48, 96)
PCA = 128
Rows = list[dict[str, Any]]  # what `io.to_json` makes of a `jaxwhiten.scoring.Row`, with further fields


def searches(folder: Path, model: str, encoder: Encoder, check: bool) -> Iterator[tuple[str, Rows]]:
    """The rows of each folder: those of `evaluate`, with PCA; the first has the number of documents that were cut."""
    for corpus in sorted(path.parent for path in folder.rglob("corpus.jsonl")):
        data = read_own(corpus)
        fields = {"documents": len(data.documents), "cut": encoder.documents.tokens(data.documents).cut}
        if check:
            fields["theirs"] = by_sentence_transformers(model, data)
        results = [*evaluate(encoder, data, bytes=BYTES, encode=stored).rows]
        results += evaluate(encoder, data, k=PCA, gamma=0.0, encode=stored).rows[1:2]
        first, *rest = (io.to_json(row) for row in results)
        rest[-1]["name"] = "PCA"
        name = folder.name
        if corpus != folder:
            name = corpus.relative_to(folder).as_posix()
        yield name, [first | fields, *rest]


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
    """Every form of every encoder by data set, with published figures; a baseline stands once for each data set.

    The means over several data sets count as MTEB's leaderboard does: parts of a folder such as cqadupstack are one.
    """
    cells = []
    references = {row.setting["model"]: row.figures for row in published.read("tasks")}
    forms: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for row in run.rows:
        words = row.get("bytes", 0) is None
        change = row.get("versus_raw")
        scores = row["scores"]
        encoder = row["encoder"]
        model = row["encoder"].partition(",")[0]
        if words:
            encoder = "words"
            model = row["name"]
        size = ""
        if row.get("bytes"):
            size = f"{row['bytes']:,}"
        labels = [encoder, row["name"], size]
        measure, score = next(iter(scores.items()))
        forms.setdefault((measure, *labels), {}).setdefault(row["data"].partition("/")[0], []).append(score)
        reference: float | str = ""
        if words or row["name"] == "raw":
            reference = references.get(model, {}).get(row["data"], "")
        interval = ""
        if change and None not in change[1] and not words:
            interval = "{:+.1f} to {:+.1f}".format(*change[1])
        figures = ["", ""]
        for column, value in enumerate((scores.get("recall_at_100"), row.get("theirs"))):
            if value:
                figures[column] = f"{value:.1f}"
        line = [row["data"], *labels, f"{score:.1f}", interval, *figures, f"{reference}"]
        if line not in cells:
            cells.append(line)
    for (_, *labels), sets in forms.items():
        if len(sets) > 1:
            cells.append([f"{len(sets)} data sets", *labels, f"{fmean(map(fmean, sets.values())):.1f}", *[""] * 4])
    heads = ["data", "encoder", "vectors", "bytes", "ours", "− raw, 95%", "recall@100", "theirs", "published"]
    return Table(heads, cells, 3)


TABLES = {"scores_table": scores_table}


def program(
    name: str, description: str | None, scored: Callable[[Path, str, Encoder, bool], Iterator[tuple[str, Rows]]]
) -> None:
    """Scores encoders on the data below a folder, and writes a run and a table."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of the data")
    parser.add_argument("--model", action="append", required=True, help="NAME=MODEL, a model ID or folder; repeatable")
    parser.add_argument("--engine", default="jax", help="jax or openvino; default: jax")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16; default: float32")
    parser.add_argument("--check", action="store_true", help="compare with the scores by other programs")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the .jsonl file to write")
    args = parser.parse_args()
    models = [argument.rpartition("=") for argument in args.model]
    labels = [label or model for label, _, model in models]  # without folders of the machine
    recorded = vars(args) | {"folder": args.folder.name, "model": labels, "output": ""}
    run = Run(header(name, recorded, encoders={}))
    for label, (_, _, model) in zip(labels, models, strict=True):
        encoder = Encoder.from_pretrained(model, engine=args.engine, dtype=args.dtype)
        run.header.encoders[label] = {
            "max_length": encoder.max_length,
            "engine": args.engine,
            "dtype": args.dtype,
            "prompts": encoder.prompts,
        }
        for data, rows in scored(args.folder, model, encoder, args.check):
            say(f"{label}: {data}")
            run.rows.extend(Record(row, encoder=label, data=data) for row in rows)
            run.save(args.output)
    run.with_header(complete=True).save(args.output)
    table = scores_table(run)
    io.write_text(args.output.with_suffix(".md"), f"{table.markdown()}\n")
    sys.stdout.write(f"{table.text()}\n")


if __name__ == "__main__":
    program("eval.beir", __doc__, searches)
