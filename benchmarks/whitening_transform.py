"""How fast are rows whitened once W is known?

    python -m benchmarks.whitening_transform [--rows 200000] [--width 768] [--rounds 5]

float32 rows to 256 columns and to all of them; every contestant has the same mean and W, but scikit-learn, which fits
its own. NumPy's product has the mean folded into a bias that is added in place, `x @ W; += b`. The floor is the product
alone, `x @ W` by BLAS, into an array that is already there. The other floor, that of memory, is a copy of as many bytes
as are read and written: a transform runs at the memory's bandwidth where that takes longer than the product, as on GPUs
and TPUs; on few CPU cores the product takes longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.harness import Ratio, in_words, interleave, median, ratio, save, speed_table
from benchmarks.whitening_fit import bert_like
from eval.runs import Run
from jaxwhiten import Whitening

FIT_ROWS = 20_000


def contestants(x: np.ndarray, k: int) -> dict[str, Callable[[], object]]:
    """What is timed; all of it gives [n, k] float32 rows, except for the copy."""
    import faiss
    from sklearn.decomposition import PCA

    n, d = x.shape
    whitening = Whitening(n_components=k).fit(x[:FIT_ROWS])
    mean = whitening.mean_.astype(np.float32)
    W = whitening.kernel[0]
    pca = PCA(n_components=k, whiten=True, svd_solver="covariance_eigh").fit(x[:FIT_ROWS])
    linear = faiss.LinearTransform(d, k, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(W.T).ravel(), linear.A)
    faiss.copy_array_to_vector(-mean @ W, linear.b)
    linear.is_trained = True
    out = np.empty((n, k), np.float32)
    bias = -mean @ W

    def folded() -> np.ndarray:
        result = x @ W
        result += bias
        return result

    read = np.ones(n * (d + k) // 2, np.float32)
    target = np.ones(n * (d + k) // 2, np.float32)
    runs: dict[str, Callable[[], object]] = {
        "jaxwhiten": lambda: whitening.transform(x),
        "floor: x @ W": lambda: np.matmul(x, W, out=out),
        "floor: a copy": lambda: np.copyto(target, read),
        "numpy, x @ W; += b": folded,
        "faiss.LinearTransform": lambda: linear.apply(x),
        "sklearn PCA": lambda: pca.transform(x),
    }
    for name in ("jaxwhiten", "numpy, x @ W; += b", "faiss.LinearTransform"):
        result = np.asarray(runs[name]())[:100]
        expected = (x[:100].astype(np.float64) - whitening.mean_) @ W
        assert np.abs(result - expected).max() < 1e-3, name
    return runs


TABLES = {"speed_table": speed_table}


def ratios(run: Run) -> Iterator[Ratio]:
    """A whitening of all vectors beside each peer's."""
    for row in run.rows:
        if row.ratio is not None:
            task = f"whiten {run.header.vectors:,} × {run.header.width} to {row['columns']} columns"
            yield task, row.contestant, row.ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    x = bert_like(args.rows, args.width)
    rows = []
    for k in (args.width // 3, args.width):
        seconds = interleave(contestants(x, k), args.rounds)
        faster = {name: ratio(seconds, "jaxwhiten", name) for name in seconds if name != "jaxwhiten"}
        print(f"{args.rows:,} x {args.width} float32 to {k} columns, {args.rounds} rounds in turn")
        for name, values in seconds.items():
            moved = 4e-9 * args.rows * (args.width + k) / median(values)
            print(f"  {name:24}{median(values):7.3f} s {moved:7.1f} GB/s  {in_words(faster.get(name))}")
            rows.append({"columns": k, "contestant": name, "seconds": values, "ratio": faster.get(name)})
    save("whitening_transform", rows, vectors=args.rows, width=args.width)


if __name__ == "__main__":
    main()
