"""Encoders on every BEIR folder below a folder: nDCG@10 of all sizes of vectors, lexical baselines, and the means.

`python -m eval.beir DIR --model NAME=MODEL [--model ...] -o runs/beir.json`

The figures are those of `jaxwhiten score FOLDER --bytes 24,48,96` and `jaxwhiten score FOLDER -k 128 --gamma 0`. With
--check NAME a model is also scored by sentence-transformers and pytrec_eval. The means count as MTEB's leaderboard
does: the parts of a folder such as cqadupstack are one data set.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from eval import published
from eval.common import say, versions
from eval.report import Table
from jaxwhiten import Encoder, evaluate, io, records
from jaxwhiten.datasets import RetrievalData, read_own
from jaxwhiten.encoding import EmbeddingStore

BYTES, PCA = (24, 48, 96), 128
_HEADS = ("data", "encoder", "vectors", "bytes")


def rows(encoder: Encoder, folder: Path) -> dict[str, Any]:
    """Every form of an encoder's vectors on a folder, as `evaluate` has them, and what is said of the texts."""
    store = EmbeddingStore()
    how = {"encode": lambda own, texts, role: store.encode(own, texts, prompt=own.prompt_for(role))}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        data = read_own(folder)
        found = evaluate(encoder, data, bytes=BYTES, **how)
        reduced = [row for row in evaluate(encoder, data, k=PCA, gamma=0.0, **how).rows if row.name == "whitened"]
    shown = [{**records.to_json(row), "name": "PCA" if row in reduced else row.name} for row in (*found.rows, *reduced)]
    return {"counts": found.counts, "notes": list({str(warning.message) for warning in told}), "rows": shown}


def checked(model: str, data: RetrievalData) -> dict[str, float]:
    """nDCG@10 by sentence-transformers' vectors and pytrec_eval."""
    import pytrec_eval
    from sentence_transformers import SentenceTransformer

    encoder, data = SentenceTransformer(model), data.with_gold()
    documents = encoder.encode_document(data.documents, normalize_embeddings=True)
    scores = encoder.encode_query(data.queries, normalize_embeddings=True) @ documents.T
    judged = {str(q): {str(i): 1 for i in ids} for q, ids in enumerate(np.split(data.gold.ids, data.gold.indptr[1:-1]))}
    best = data.others(np.argsort(-scores, axis=1)[:, :101])
    run = {str(q): {str(i): float(scores[q, i]) for i in ids} for q, ids in enumerate(best)}
    found = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10"}).evaluate(run)
    return {"ndcg_at_10": 100 * fmean(of_query["ndcg_cut_10"] for of_query in found.values())}


def means(folders: dict[str, Any]) -> list[dict[str, Any]]:
    """The mean nDCG@10 of each form over the data sets; parts of one folder are one data set."""
    forms: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for name, found in folders.items():
        for row in found["rows"]:
            of_form = forms.setdefault((row["name"], row.get("bytes")), {})
            of_form.setdefault(name.partition("/")[0], []).append(row["scores"]["ndcg_at_10"])
    return [
        {"name": name, "bytes": size, "datasets": len(parts), "ndcg_at_10": fmean(map(fmean, parts.values()))}
        for (name, size), parts in forms.items()
    ]


def beir_table(result: dict[str, Any]) -> Table:
    """Every form of every encoder by data set, with published figures; a baseline stands once for each data set."""
    cells, known = [], {row.setting["model"]: row.figures for row in published.read("tasks")}
    for encoder, found in result["encoders"].items():
        for data, of_data in found["folders"].items():
            for row in of_data["rows"]:
                words, change, scores = row.get("bytes") is None, row.get("versus_raw"), row["scores"]
                what = ["words", row["name"]] if words else [encoder, row["name"]]
                there = known.get(row["name"] if words else encoder if row["name"] == "raw" else "", {})
                ends = "{:+.1f} to {:+.1f}".format(*change[1]) if change and not words else ""
                figures = [f"{scores[name]:.1f}" for name in ("ndcg_at_10", "recall_at_100")]
                size = "" if words else f"{row['bytes']:,}"
                line = [data, *what, size, figures[0], ends, figures[1], f"{there.get(data, '')}"]
                cells += [line] if line not in cells else []
            if checked := of_data.get("checked"):
                what, figure = "raw, by sentence-transformers", f"{checked['ndcg_at_10']:.1f}"
                cells.append([data, encoder, what, "", figure, "", "", ""])
    return Table([*_HEADS, "nDCG@10", "− raw, 95%", "recall@100", "published"], cells, 3)


def means_table(result: dict[str, Any]) -> Table:
    """The means over data sets."""
    cells = [
        [f"{row['datasets']} data sets", encoder, row["name"], f"{row['bytes'] or ''}", f"{row['ndcg_at_10']:.1f}"]
        for encoder, found in result["encoders"].items()
        for row in found["means"]
    ]
    return Table([*_HEADS, "nDCG@10"], cells, 3)


VIEWS = {"beir_table": beir_table, "means_table": means_table}


def main() -> None:
    parser = argparse.ArgumentParser(description="Scores encoders on every BEIR folder below a folder.")
    parser.add_argument("folder", type=Path, help="a BEIR folder, or a folder of them")
    parser.add_argument("--model", action="append", required=True, help="NAME=MODEL, a model ID or folder; repeatable")
    parser.add_argument("--engine", default="jax", help="jax or openvino; default: jax")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16; default: float32")
    parser.add_argument("--check", default="", metavar="NAME", help="score this model by sentence-transformers, too")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the JSON file to write")
    args = parser.parse_args()
    folders = sorted(path.parent for path in args.folder.rglob("corpus.jsonl"))
    encoders: dict[str, Any] = {}
    for given in args.model:
        name, _, model = given.rpartition("=")
        encoder, found = Encoder.from_pretrained(model, engine=args.engine, dtype=args.dtype), dict[str, Any]()
        for folder in folders:
            at = str(folder.relative_to(args.folder)) if folder != args.folder else folder.name
            say(f"{name or model}: {at}")
            found[at] = rows(encoder, folder)
            if args.check and args.check == name:
                found[at]["checked"] = checked(model, read_own(folder))
        about = {
            "max_length": encoder.max_length,
            "dtype": encoder.dtype,
            "pooling": encoder.pooling,
            "prompts": encoder.prompts,
        }
        encoders[name or model] = {**about, "folders": found, "means": means(found)}
        result = {"command": "python -m eval.beir DIR", "versions": versions(), "encoders": encoders}
        io.write_json(args.output, result)
    tables = [view(result) for view in VIEWS.values()]
    io.write_text(args.output.with_suffix(".md"), "\n\n".join(table.markdown() for table in tables) + "\n")
    sys.stdout.write("\n\n".join(table.text() for table in tables) + "\n")


if __name__ == "__main__":
    main()
