"""Fitting a whitening beside its peers: the release's numpy, faiss, scikit-learn; in memory, and streamed from disk.

    python -m benchmarks.whitening_fit [--rows 200000] [--width 768] [--rounds 3]

Every contestant gets the same float32 rows, with a spectrum like BERT's and a mean, and makes the matrix that whitens
them. The floor is one float32 `X.T @ X` by BLAS and the eigendecomposition of its result in float64. Accuracy is how
far the covariance of the transformed rows is from the identity, in float64, on the directions whose eigenvalue is above
1e-6 of the largest. IncrementalPCA and ours also read the rows from disk, by blocks.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import OURS, SPEED, Ratio, in_words, interleave, median, ratio, save
from eval.runs import Run
from jaxwhiten import Moments, Whitening

BLOCK = 16_384
Affine = tuple[np.ndarray, np.ndarray]  # mean [d] and W [d, k]: (x − mean) @ W has identity covariance


def bert_like(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Rows with a decaying spectrum and a mean away from 0, as BERT's have."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0] * np.arange(1, d + 1) ** -0.5
    mean = rng.standard_normal(d) / 5
    rows = np.empty((n, d), np.float32)
    for start in range(0, n, BLOCK):
        part = rows[start : start + BLOCK]
        part[:] = rng.standard_normal(part.shape, np.float32) @ rotation.T.astype(np.float32) + mean
    return rows


def floor(x: np.ndarray) -> None:
    """The least that any of them does."""
    np.linalg.eigh((x.T @ x).astype(np.float64))


def fit_jaxwhiten(x: np.ndarray) -> Affine:
    """`Whitening.fit`."""
    whitening = Whitening().fit(x)
    return _affine(whitening)


def _affine(whitening: Whitening) -> Affine:
    return whitening.mean_, whitening.components_ / np.sqrt(whitening.eigenvalues_)


def fit_streamed(path: Path) -> Affine:
    """`Moments.update` over blocks of a file."""
    x = np.load(path, mmap_mode="r")
    moments = Moments()
    for start in range(0, len(x), BLOCK):
        moments.update(x[start : start + BLOCK])
    return _affine(Whitening.from_moments(moments))


def release(x: np.ndarray) -> Affine:
    """As the code released with the paper does it: `np.cov` and `np.linalg.svd`."""
    mean = x.mean(axis=0, keepdims=True)
    u, s, _ = np.linalg.svd(np.cov(x.T))
    return mean[0], u @ np.diag(s**-0.5)


def faiss_pca(x: np.ndarray) -> Affine:
    """`faiss.PCAMatrix` with eigen_power −0.5, all rows. Its eigenvalues are sums over the rows, not means."""
    import faiss

    n, d = x.shape
    pca = faiss.PCAMatrix(d, d, -0.5)
    pca.max_points_per_d = n  # it would draw 1,000 rows per dimension
    pca.train(x)
    w = faiss.vector_to_array(pca.A).reshape(d, d).T
    return -np.linalg.solve(w.T.astype(np.float64), faiss.vector_to_array(pca.b).astype(np.float64)), w * n**0.5


def sklearn_pca(x: np.ndarray) -> Affine:
    """scikit-learn's PCA by the covariance."""
    from sklearn.decomposition import PCA

    pca = PCA(whiten=True, svd_solver="covariance_eigh").fit(x)
    return pca.mean_, (pca.components_ / np.sqrt(pca.explained_variance_)[:, None]).T


def incremental_pca(x: np.ndarray) -> Affine:
    """scikit-learn's IncrementalPCA, by blocks of the same size as ours."""
    from sklearn.decomposition import IncrementalPCA

    pca = IncrementalPCA(whiten=True, batch_size=BLOCK).fit(x)
    return pca.mean_, (pca.components_ / np.sqrt(pca.explained_variance_)[:, None]).T


def error(fitted: Affine, mean: np.ndarray, covariance: np.ndarray) -> float:
    """Largest deviation of the whitened covariance from the identity, and of the mean, on the sound directions."""
    values, vectors = np.linalg.eigh(covariance)
    sound = vectors[:, values > 1e-6 * values[-1]]
    w = np.asarray(fitted[1], np.float64)
    w = w[:, : sound.shape[1]]
    deviation = np.abs(w.T @ covariance @ w - np.eye(w.shape[1])).max()
    return float(max(deviation, np.abs((mean - fitted[0]) @ w).max()))


TABLES = SPEED
HEADLINE = "", ("sklearn PCA",)


def ratios(run: Run) -> Iterator[Ratio]:
    """The fit beside each peer's, with the errors."""
    errors = {row.contestant: row.error for row in run.rows}
    task = f"fit a whitening on {run.header.vectors:,} × {run.header.width}, off by {errors[OURS]:.0e}"
    for row in run.rows:
        if row.ratio is not None:
            error = ""
            if row.error is not None:
                error = f", off by {row.error:.0e}"
            yield task, row.contestant + error, row.ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore")

    x = bert_like(args.rows, args.width)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "x.npy")
        np.save(path, x)
        contestants: dict[str, Callable[[], object]] = {
            "jaxwhiten": lambda: fit_jaxwhiten(x),
            "jaxwhiten, from disk": lambda: fit_streamed(path),
            "floor: X.T @ X + eigh": lambda: floor(x),
            "numpy, as released": lambda: release(x),
            "faiss.PCAMatrix": lambda: faiss_pca(x),
            "sklearn PCA": lambda: sklearn_pca(x),
        }
        if importlib.util.find_spec("faiss") is None:
            contestants.pop("faiss.PCAMatrix")
        seconds = interleave(contestants, args.rounds)
        # An order of magnitude slower: fewer rounds.
        slow: dict[str, Callable[[], object]] = {
            "jaxwhiten, from disk": contestants["jaxwhiten, from disk"],
            "sklearn IncrementalPCA, from disk": lambda: incremental_pca(np.load(path, mmap_mode="r")),
        }
        slow_seconds = interleave(slow, 1, warmup=0)
        mean = x.mean(axis=0, dtype=np.float64)
        covariance = np.zeros((args.width, args.width))
        for start in range(0, args.rows, BLOCK):
            part = x[start : start + BLOCK].astype(np.float64) - mean
            covariance += part.T @ part
        covariance /= args.rows
        errors = {
            name: error(run(), mean, covariance)  # type: ignore[arg-type]
            for name, run in (contestants | slow).items()
            if not name.startswith("floor")
        }
    seconds["sklearn IncrementalPCA, from disk"] = slow_seconds["sklearn IncrementalPCA, from disk"]
    faster = {name: ratio(seconds, "jaxwhiten", name) for name in contestants if name != "jaxwhiten"}
    faster["sklearn IncrementalPCA, from disk"] = ratio(
        slow_seconds, "jaxwhiten, from disk", "sklearn IncrementalPCA, from disk"
    )
    print(f"{args.rows:,} x {args.width} float32, {args.rounds} rounds in turn")
    for name, values in seconds.items():
        wrong = "–"
        if name in errors:
            wrong = f"{errors[name]:.1e}"
        print(f"  {name:36}{median(values):7.2f} s  error {wrong:8} {in_words(faster.get(name))}")
    rows = [
        {"contestant": name, "seconds": rounds, "ratio": faster.get(name), "error": errors.get(name)}
        for name, rounds in seconds.items()
    ]
    save("whitening_fit", rows, vectors=args.rows, width=args.width)


if __name__ == "__main__":
    main()
