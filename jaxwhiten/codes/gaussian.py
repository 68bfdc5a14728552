"""A product quantizer for normal vectors of known variances: axes dealt out to bytes, and a codebook for each byte.

References:
  Cover, Thomas 2006, "Elements of Information Theory", theorem 10.3.3 (reverse water-filling).
  Linde, Buzo, Gray 1980, "An algorithm for vector quantizer design", for the codebooks; Gersho 1979, "Asymptotically
  optimal block quantization", for their start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxwhiten.runtime import hardware
from jaxwhiten.types import AnyArray, Float, Float32, Float64, Int, UInt8

# normal vectors; steps of Lloyd's algorithm from scratch, and after
_SAMPLES = 1 << 14
_STEPS = 12
_STEPS_AFTER = 3
_ROWS = 512  # rows at a time: their scores stay in the cache
# With a bit per axis or more, the squared error along an axis counts with this power of its variance. Scores are
# products with queries, which vary like the vectors, so that an error along an axis of much variance changes more
# scores. With fewer bits, it was seen to cost half a point of MRR@10.
_POWER = 0.3


class Design(NamedTuple):
    """A product quantizer for N(0, diag(λ)) along the first k axes, scaled so that their variances have the sum 1."""

    group: Int[np.ndarray, " k"]  # of each axis
    centroids: Float32[np.ndarray, "groups points width"]  # in the order of a group's axes, then zeros
    lost: float  # expected squared distance to the nearest centroids

    @property
    def used(self) -> Int[np.ndarray, " k"]:
        """The places of the axes among groups × width columns, sorted by group and axis."""
        widths = np.bincount(self.group)
        return np.flatnonzero(np.arange(widths.max()) < widths[:, None])


def rates(variances: Float64[np.ndarray, " k"], bits: int, most: int | None = None) -> Float64[np.ndarray, " k"]:
    """Shannon's bits of each axis at a total of `bits`, at most `most` each: reverse water-filling."""
    logs = np.log2(np.maximum(variances, np.finfo(float).tiny)) / 2
    low = logs.min() - (bits if most is None else most) - 1
    high = logs.max()
    for _ in range(100):
        level = (low + high) / 2
        if np.clip(logs - level, 0, most).sum() > bits:
            low = level
        else:
            high = level
    return np.clip(logs - high, 0, most)


def bound(variances: Float64[np.ndarray, " k"], bits: int) -> float:
    """The least squared error of any code of so many bits, as a share of the variance."""
    return float((variances * 4.0 ** -rates(variances, bits)).sum() / variances.sum())


def deal(variances: Float64[np.ndarray, " d"], groups: int, bits: int) -> Int[np.ndarray, " k"]:
    """The group of each axis above the water level, so that all groups have about the same rate.

    `variances` fall, and there are at least as many as groups. The axis of the next highest rate goes to the group with
    the least rate so far.
    """
    rate = rates(variances, groups * bits, bits)
    load = np.zeros(groups)
    group = np.arange(max(groups, int(np.count_nonzero(rate > 0))))
    for axis in group:
        if axis >= groups:
            group[axis] = load.argmin()
        load[group[axis]] += rate[axis]
    return group


def design(variances: Float64[np.ndarray, " d"], groups: int, bits: int, seed: int = 0) -> Design:
    """Makes a quantizer of `groups` × `bits` bits from falling variances alone, by k-means of normal vectors.

    k-means sees every axis scaled by the root of its weight, see `_POWER`. A codebook has the points c and −c, like the
    density, and starts from that of the group before with as many axes, stretched to its own.
    """
    from scipy.special import ndtri

    power = _POWER if groups * bits >= len(variances) else 0.0
    scales = (variances / variances[0]) ** (power / 2)
    group = deal(variances * scales**2, groups, bits)
    scales = scales[: len(group)].astype(np.float32)
    normalized = variances[: len(group)] / variances[: len(group)].sum()
    spread = np.sqrt(normalized).astype(np.float32)
    widths = np.bincount(group)
    points = 2 ** (bits - 1)
    width = int(widths.max())
    centroids = np.zeros((groups, 2 * points, width), np.float32)
    generator = np.random.default_rng(seed)
    # Half of what is drawn is used, so that equal moments give the codebooks that they gave before.
    normal, _ = generator.standard_normal((2, _SAMPLES, width), np.float32)
    first = generator.choice(_SAMPLES, points, replace=False)

    def make(numbers: Int[np.ndarray, " n"]) -> float:
        lost = 0.0
        before = np.zeros((points, 0), np.float32)
        for number in numbers:
            w = widths[number]
            axes = group == number
            deviations = spread[axes] * scales[axes]
            x = normal[:, :w] * deviations
            if before.shape[1] == w:
                book, shares = lloyd(x, before * deviations, _STEPS_AFTER)
            else:  # the density of many points is that of N(0, λ (w + 2) / w)
                if w > 1:
                    start = x[first]
                else:
                    start = deviations * ndtri((np.arange(points) + 0.5) / (2 * points))[:, None]
                book, shares = lloyd(x, start * np.sqrt(1 + 2 / w), _STEPS)
            before = book / deviations
            kept = shares @ np.square(book, dtype=np.float64)  # centroids are means: the rest of the squares is lost
            lost += float(((np.square(x).mean(axis=0) - kept) / scales[axes] ** 2).sum())
            centroids[number, :, :w] = mirrored(book / scales[axes])
        return lost

    # Two chains on every machine, so that the codebooks do not depend on the number of its cores.
    lost = sum(hardware.on_threads(make, np.array_split(np.argsort(widths, kind="stable"), 2)))
    return Design(group, centroids, lost)


def mirrored(points: Float32[np.ndarray, "half w"]) -> Float32[np.ndarray, "points w"]:
    """The points c, and −c."""
    return np.concatenate([points, -points])


def lloyd(
    x: Float[np.ndarray, "n w"], start: Float[np.ndarray, "half w"], steps: int
) -> tuple[Float32[np.ndarray, "half w"], Float64[np.ndarray, " half"]]:
    """Steps of k-means with the points c and −c for rows x and −x: the points c, and the share of rows of each.

    A point that is nearest to no row stays where it is.
    """
    centroids = np.array(start, np.float32)
    half = len(centroids)
    for _ in range(steps):
        chosen = nearest(x, mirrored(centroids)[None])[:, 0]
        turned = np.where(chosen[:, None] < half, x, -x)
        chosen = chosen % half
        order = np.argsort(chosen, kind="stable")
        counts = np.bincount(chosen, minlength=half)
        some = counts > 0
        starts = np.cumsum(counts) - counts
        sums = np.add.reduceat(turned[order], starts[some], axis=0)
        centroids[some] = sums / counts[some, None]
    return centroids, counts / len(x)


def nearest(
    x: Float[np.ndarray, "n columns"], centroids: Float32[np.ndarray, "groups points w"]
) -> UInt8[np.ndarray, "n groups"]:
    """The number of the nearest centroid in every group, on one core of the host; a group's columns are adjacent.

    Of points c and −c only the products with c are made.
    """
    groups, points, w = centroids.shape
    pairs = np.array_equal(centroids[:, points // 2 :], -centroids[:, : points // 2])
    if pairs:
        centroids = centroids[:, : points // 2]
    tables = np.ascontiguousarray(centroids.transpose(0, 2, 1))
    halves = (centroids**2).sum(axis=2) / 2
    out = np.empty((len(x), groups), np.uint8)
    products = np.empty((2, _ROWS, centroids.shape[1]), np.float32)
    for first in range(0, len(x), _ROWS):
        rows = x[first : first + _ROWS]
        product, score = products[:, : len(rows)]
        each = np.arange(len(rows))
        for number in range(groups):
            np.matmul(rows[:, number * w : (number + 1) * w], tables[number], out=product)
            scores = np.subtract(np.abs(product, out=score) if pairs else product, halves[number], out=score)
            chosen = scores.argmax(axis=1)
            if pairs:
                chosen += points // 2 * (product[each, chosen] < 0)
            out[first : first + _ROWS, number] = chosen
    return out


def nearest_on_cores(
    x: Float[np.ndarray, "n columns"], centroids: Float32[np.ndarray, "groups points w"]
) -> UInt8[np.ndarray, "n groups"]:
    """`nearest` on all cores of the host."""
    out = np.empty((len(x), len(centroids)), np.uint8)

    def fill(chunks: list[slice]) -> None:
        for rows in chunks:
            out[rows] = nearest(x[rows], centroids)

    hardware.on_cores(fill, range(len(x)), max(1, len(x)), hardware.cores())
    return out


def nearest_on_device(
    x: Float[AnyArray, "n columns"], centroids: Float32[AnyArray, "groups points w"]
) -> UInt8[AnyArray, "n groups"]:
    """`nearest` in JAX, also inside a compiled function."""
    import jax
    import jax.numpy as jnp

    points = jnp.arange(centroids.shape[1], dtype=jnp.int32)

    def one(
        group: tuple[AnyArray, AnyArray],
    ) -> AnyArray:  # a CPU keeps one group's scores in its cache, and finds a maximum faster
        rows, book = group
        scores = jnp.matmul(rows, book.T, precision="highest") - (book**2).sum(axis=1) / 2
        best = scores >= scores.max(axis=1, keepdims=True)
        return jnp.where(best, points, len(points)).min(axis=1).astype(jnp.uint8)

    rows = x.reshape(len(x), len(centroids), -1).swapaxes(0, 1)
    return jax.lax.map(one, (rows, jnp.asarray(centroids))).T
