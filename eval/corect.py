"""CoRECT's methods beside codes, on one BEIR folder: documents and queries are compressed, and compared by cosines.

`python -m eval.corect FOLDER --model MODEL -o runs/corect.jsonl`

CoRECT (Caspari et al. 2025, arXiv 2510.19340) casts, bins each dimension by equal distances (between its 2.5th and
97.5th percentile) or by percentiles, thresholds at zero or the median, and hashes. Its truncation, PCA and PQ are rows
of `eval.compression`. Values beyond the outer bins are put into these, so that they fit their bits;
numbers of bins are compared as they are, so that each dimension is divided by its range.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import ml_dtypes
import numpy as np

from eval.report import Table, figure, table
from eval.runs import Record, Run, header
from jaxwhiten import Encoder, SpectrumCode, metrics, normalize, scoring
from jaxwhiten.datasets import read_own
from jaxwhiten.encoding import EmbeddingStore

Compress = Callable[[np.ndarray], np.ndarray]  # vectors to what a method keeps of them, as numbers
BYTES = (24, 48, 96)
BITS = (2, 4, 8)
HASHES = (1024, 2048)


def methods(documents: np.ndarray) -> Iterator[tuple[str, float, Compress]]:
    """Name, bytes per vector and compression of each method, whose bins and thresholds are those of the documents."""
    width = documents.shape[1]
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        yield name, width * dtype.itemsize, partial(_cast, dtype=dtype)
    for bits in BITS:
        yield f"equal distance, {bits} bits", width * bits / 8, equal_distance(documents, bits)
        yield f"percentile, {bits} bits", width * bits / 8, percentile(documents, bits)
    for name, threshold in (("zero", 0.0), ("median", np.median(documents, axis=0))):
        yield f"binary, {name}", width / 8, partial(_above, least=threshold)
    for bits in HASHES:
        hashes = faiss.IndexLSH(width, bits)
        hashes.train(documents)
        yield f"LSH, {bits} bits", bits / 8, partial(_hashed, hashes=hashes)


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x.astype(dtype).astype(np.float32)


def _above(x: np.ndarray, least: Any) -> np.ndarray:
    return (x > least).astype(np.float32)


def _hashed(x: np.ndarray, hashes: Any) -> np.ndarray:
    decoded: np.ndarray = hashes.sa_decode(hashes.sa_encode(x))
    return decoded


def equal_distance(documents: np.ndarray, bits: int) -> Compress:
    """The numbers of equal bins of each dimension, from −2^(bits − 1) on.

    >>> equal_distance(np.linspace(0, 1, 101, dtype=np.float32)[:, None], 2)(np.array([[0.0], [0.5], [1.0]])).ravel()
    array([-2., -1.,  1.])
    """
    low, high = np.percentile(documents, [2.5, 97.5], axis=0)
    step = (high - low) / (2**bits - 1)
    return lambda x: np.clip(np.floor((x - low) / step), 0, 2**bits - 1) - 2 ** (bits - 1)


def percentile(documents: np.ndarray, bits: int) -> Compress:
    """The numbers of bins with as many documents each, from 0 on.

    >>> percentile(np.arange(8.0)[:, None], 2)(np.array([[0.0], [3.0], [9.0]])).ravel()
    array([0., 1., 3.])
    """
    edges = np.percentile(documents, np.linspace(0, 100, 2**bits + 1)[1:-1], axis=0)

    def compress(x: np.ndarray) -> np.ndarray:
        columns = [np.searchsorted(edge, column) for edge, column in zip(edges.T, x.T, strict=True)]
        return np.stack(columns, axis=1).astype(np.float32)

    return compress


def scored(documents: np.ndarray, queries: np.ndarray, gold: metrics.Gold) -> Iterator[Record]:
    """A row for each method and code: nDCG@10, and the share of float32's first ten that its first ten contain."""
    exact = first(documents, queries)

    def row(name: str, size: float, ids: np.ndarray) -> Record:
        gains = metrics.discounted_gains(ids, gold)
        recall = metrics.recalls(ids, list(exact))
        return Record(method=name, bytes=size, ndcg=float(gains.mean()), recall=float(recall.mean()))

    yield row("float32", 4.0 * documents.shape[1], exact)
    for name, size, compress in methods(documents):
        yield row(name, size, first(compress(documents), compress(queries)))
    for count in BYTES:
        code = SpectrumCode(bytes=count).fit(documents)
        yield row("spectrum", float(count), first(code.decode(code.encode(documents)), queries))


def first(documents: np.ndarray, queries: np.ndarray, k: int = 10) -> np.ndarray:
    """The first documents of each query by cosine."""
    return scoring.best(normalize(queries) @ normalize(documents).T, k)


def methods_table(run: Run) -> Table:
    """A row for each method, the smallest first."""
    columns = {
        "method": "method",
        "bytes": figure("bytes", 0),
        "nDCG@10": lambda row: f"{100 * row.ndcg:.1f}",
        "recall@10": figure("recall", 3),
    }
    return table(sorted(run.rows, key=lambda row: row.bytes), columns, 1, "")


TABLES = {"methods_table": methods_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a BEIR folder")
    parser.add_argument("--model", required=True, help="a model ID or folder")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the .jsonl file to write")
    args = parser.parse_args()
    data = read_own(args.folder).with_gold()
    encoder = Encoder.from_pretrained(args.model)
    store = EmbeddingStore()
    documents, queries = (
        normalize(np.asarray(store.encode(encoder.view.in_role(role), texts), np.float32))
        for role, texts in (("document", data.documents), ("query", data.queries))
    )
    run = Run(header("eval.corect", {"model": args.model}, complete=True))
    run.rows.extend(scored(documents, queries, data.gold))
    run.save(args.output)
    sys.stdout.write(f"{methods_table(run).text()}\n")


if __name__ == "__main__":
    main()
