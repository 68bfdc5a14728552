"""Fitting a whitening beside its peers, in memory and streamed from disk.

    python -m benchmarks.whitening [--rows 200000] [--width 768] [--rounds 3]

Every contestant gets the same float32 rows, with a spectrum like BERT's and a mean, and makes the matrix that whitens
them. The floor is one float32 `X.T @ X` by BLAS and the eigendecomposition of its result in float64. The error is how
far the covariance of the transformed rows is from the identity, in float64, on the directions whose eigenvalue is above
1e-6 of the largest. Ours also reads the rows from disk, by blocks, as IncrementalPCA does.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.contestants import made
from benchmarks.harness import OURS, interleave, ratio
from configs.settings import Config, setting
from jaxwhiten import Moments, Whitening

BLOCK = 16_384
Affine = tuple[np.ndarray, np.ndarray]  # mean [d] and W [d, k]: (x − mean) @ W has identity covariance


@dataclass(slots=True)
class Whitenings(Config):
    """The settings of benchmarks.whitening."""

    rows: int = setting(200_000, "vectors")
    width: int = setting(768, "their dimensions")
    rounds: int = setting(3, "of each contestant")


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


def by_jaxwhiten(x: np.ndarray) -> Affine:
    """`Whitening.fit`."""
    whitening = Whitening().fit(x)
    return whitening.mean_, whitening.components_ / np.sqrt(whitening.eigenvalues_)


def streamed(path: Path) -> Affine:
    """`Moments.update` over blocks of a file."""
    x = np.load(path, mmap_mode="r")
    moments = Moments()
    for start in range(0, len(x), BLOCK):
        moments.update(x[start : start + BLOCK])
    whitening = Whitening.from_moments(moments)
    return whitening.mean_, whitening.components_ / np.sqrt(whitening.eigenvalues_)


def floor(x: np.ndarray) -> None:
    """The least that any of them does."""
    np.linalg.eigh((x.T @ x).astype(np.float64))


def release(x: np.ndarray) -> Affine:
    """As the code released with the paper does it: `np.cov` and `np.linalg.svd`."""
    u, s, _ = np.linalg.svd(np.cov(x.T))
    return x.mean(axis=0), u @ np.diag(s**-0.5)


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


def error(fitted: Affine, mean: np.ndarray, covariance: np.ndarray) -> float:
    """Largest deviation of the whitened covariance from the identity, and of the mean, on the sound directions."""
    values, vectors = np.linalg.eigh(covariance)
    sound = vectors[:, values > 1e-6 * values[-1]]
    w = np.asarray(fitted[1], np.float64)[:, : sound.shape[1]]
    deviation = np.abs(w.T @ covariance @ w - np.eye(w.shape[1])).max()
    return float(max(deviation, np.abs((mean - fitted[0]) @ w).max()))


def measure(config: Whitenings) -> Iterator[harness.Row]:
    """A row for each fit."""
    warnings.simplefilter("ignore")
    x = bert_like(config.rows, config.width)
    moments = Moments().update(x.astype(np.float64))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "x.npy")
        np.save(path, x)
        contestants: dict[str, Callable[[], Affine | None]] = {
            OURS: functools.partial(by_jaxwhiten, x),
            f"{OURS}, from disk": functools.partial(streamed, path),
            "floor: X.T @ X + eigh": functools.partial(floor, x),
            "numpy, as released": functools.partial(release, x),
            "faiss.PCAMatrix": functools.partial(faiss_pca, x),
            "sklearn PCA": functools.partial(sklearn_pca, x),
        }
        fitted, skipped = made(contestants)
        yield harness.Facts(skipped=skipped)
        seconds = interleave({name: contestants[name] for name in fitted}, config.rounds, warmup=0)
    for name, affine in fitted.items():
        row = {"contestant": name, "seconds": seconds[name], "ratio": ratio(seconds, OURS, name)}
        yield row | {"error": None if affine is None else error(affine, moments.mean, moments.covariance())}


if __name__ == "__main__":
    harness.run(measure, Whitenings)
