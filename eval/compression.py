"""Codes in benchmarks of others: BitBudget's protocol, and MTEB's retrieval beside its `CompressionWrapper`.

`python -m eval.compression FOLDER --model MODEL -o runs/compression.jsonl`

FOLDER is a BEIR folder, whose texts are those of both benchmarks: a document is its title and its text. Needs the
packages bitbudget and mteb.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from eval.common import say
from eval.mteb_encoder import MTEBEncoder
from eval.report import Table, figure, table
from eval.runs import Record, Run, header
from jaxwhiten import Encoder, SpectrumCode, normalize
from jaxwhiten.encoding import EmbeddingStore

BYTES = (24, 48, 96)
_TYPES = {"int8": "INT8", "binary": "BINARY", "int4": "INT4"}  # of MTEB


class CachedVectors:
    """An encoder whose vectors are kept: each text is encoded once for all methods."""

    def __init__(self, encoder: Encoder, texts: list[str]):
        self.encoder = encoder
        vectors = normalize(EmbeddingStore().encode(encoder, texts))
        self.vectors = dict(zip(texts, vectors, strict=True))

    def lookup(self, texts: list[str]) -> np.ndarray:
        return np.stack([self.vectors[text] for text in texts])


class _Model(MTEBEncoder):
    """A model of MTEB with these vectors."""

    def __init__(self, cached: CachedVectors):
        super().__init__(cached.encoder)
        self.cached = cached

    def encode(self, inputs: Any, **options: object) -> np.ndarray:
        return self.cached.lookup([text for batch in inputs for text in batch["text"]])


class CodeWrapper:
    """Any model of MTEB with coded texts, beside `mteb.models.CompressionWrapper`, which has int8, binary and others.

    Queries stay as they are; all other texts are decoded codes. The code is fitted, without labels, on the first of
    these texts that are encoded for a task: the corpus, up to `corpus_chunk_size`.
    """

    def __init__(self, model: Any, bytes: int) -> None:
        self.model = model
        self.bytes = bytes
        self._fitted: dict[tuple[Any, ...], SpectrumCode] = {}
        self.similarity = model.similarity
        self.similarity_pairwise = model.similarity_pairwise
        meta = model.mteb_model_meta
        kwargs = {**(meta.experiment_kwargs or {}), "code": SpectrumCode.name, "bytes": str(bytes)}
        self.mteb_model_meta = meta.model_copy(update={"experiment_kwargs": kwargs})

    def encode(self, inputs: Any, *, prompt_type: Any = None, **about: Any) -> np.ndarray:
        """The model's vectors of queries, and decoded codes of other texts; arguments as of MTEB's models."""
        vectors = np.asarray(self.model.encode(inputs, prompt_type=prompt_type, **about), np.float32)
        if str(getattr(prompt_type, "value", prompt_type or "")) == "query":
            return vectors
        task = getattr(about.get("task_metadata"), "name", None), about.get("hf_split"), about.get("hf_subset")
        if task not in self._fitted:
            self._fitted[task] = SpectrumCode(bytes=self.bytes).fit(normalize(vectors))
        code = self._fitted[task]
        return code.decode(code.encode(normalize(vectors)))


def compressed(bytes: int, documents: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, int]:
    """A method of BitBudget: cosines of queries with the documents' decoded codes, and the bytes of a code."""
    unit = normalize(documents)
    code = SpectrumCode(bytes=bytes).fit(unit)
    return code.scores(queries, code.encode(unit)), code.nbytes


def by_bitbudget(
    cached: CachedVectors,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    judged: Mapping[str, Mapping[str, int]],
) -> Iterator[dict[str, Any]]:
    """The rows of BitBudget's own methods and of codes; nDCG@10, and recall of float32's ten."""
    bitbudget = importlib.import_module("bitbudget")
    for size in BYTES:
        bitbudget.method(f"spectrum, {size} bytes")(functools.partial(compressed, size))
    vectors = (cached.lookup(list(texts.values())) for texts in (documents, queries))
    yield from bitbudget.evaluate(*vectors, list(documents), list(queries), judged)


def task_of(
    documents: Mapping[str, str], queries: Mapping[str, str], judged: Mapping[str, Mapping[str, int]], name: str
) -> Any:
    """MTEB's task of a name with these texts in the place of the download."""
    datasets = importlib.import_module("datasets")
    mteb = importlib.import_module("mteb")
    task = mteb.get_task(name)
    split = {
        "corpus": datasets.Dataset.from_dict({"id": [*documents], "text": [*documents.values()]}),
        "queries": datasets.Dataset.from_dict({"id": [*queries], "text": [*queries.values()]}),
        "relevant_docs": {query: dict(grades) for query, grades in judged.items()},
        "top_ranked": None,
    }
    task.dataset = {"default": {"test": split}}
    task.data_loaded = True
    return task


def by_mteb(cached: CachedVectors, task: Any) -> Iterator[tuple[str, float]]:
    """MTEB's nDCG@10 of float32, of its own compressions, and of codes."""
    mteb = importlib.import_module("mteb")
    models = importlib.import_module("mteb.models")
    dtypes = importlib.import_module("mteb.types").OutputDType
    forms = {"float32": lambda: _Model(cached)}
    for name, dtype in _TYPES.items():
        forms[name] = lambda dtype=dtype: models.CompressionWrapper(_Model(cached), dtypes[dtype])
    for size in BYTES:
        forms[f"spectrum, {size} bytes"] = lambda size=size: CodeWrapper(_Model(cached), size)
    for name, make in forms.items():
        results = mteb.evaluate(make(), task, cache=None, co2_tracker=False, encode_kwargs={"show_progress_bar": False})
        yield name, float(results[0].scores["test"][0]["ndcg_at_10"])


def methods_table(run: Run) -> Table:
    """A row for each method of BitBudget, the smallest first, and MTEB's figure where it has the method, too."""
    columns = {
        "method": lambda row: row.method.partition(",")[0],
        "bytes": figure("bytes", 0),
        "BitBudget: nDCG@10": lambda row: f"{100 * row.ndcg:.1f}",
        "recall@10": figure("recall", 3),
        "MTEB: nDCG@10": lambda row: "" if row.mteb_ndcg is None else f"{100 * row.mteb_ndcg:.1f}",
    }
    return table(sorted((row for row in run.rows if "bytes" in row), key=lambda row: row.bytes), columns, 1, "")


TABLES = {"methods_table": methods_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a BEIR folder")
    parser.add_argument("--model", required=True, help="a model ID or folder")
    parser.add_argument("--task", default="SciFact", help="MTEB's name of the data; default: SciFact")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the .jsonl file to write")
    args = parser.parse_args()
    read = importlib.import_module("bitbudget.datasets")
    read._download = lambda name, cache: str(args.folder)  # it is here
    documents, queries, judged = read.load(args.folder.name)
    cached = CachedVectors(
        Encoder.from_pretrained(args.model), [*dict.fromkeys([*documents.values(), *queries.values()])]
    )
    run = Run(header("eval.compression", {"model": args.model, "task": args.task}, complete=True))
    for name in ("bitbudget", "mteb"):
        run.header.versions[name] = metadata.version(name)
    rows = list(by_bitbudget(cached, documents, queries, judged))
    say(f"{args.folder.name}: BitBudget")
    mteb_scores = dict(by_mteb(cached, task_of(documents, queries, judged, args.task)))
    run.rows.extend(Record(row, mteb_ndcg=mteb_scores.pop(row["method"], None)) for row in rows)
    run.rows.extend(Record(method=name, mteb_ndcg=score) for name, score in mteb_scores.items())
    run.save(args.output)
    sys.stdout.write(f"{methods_table(run).text()}\n")


if __name__ == "__main__":
    main()
