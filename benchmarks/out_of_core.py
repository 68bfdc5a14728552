"""A whitening of more vectors than memory holds: generated on disk, fitted from there, with the memory it took.

    python -m benchmarks.out_of_core [--gb 10] [--width 768] [--folder DIR]

Writes one `.npy` file of float32 rows, block by block, and runs `jaxwhiten fit` on it in a process of its own, whose
largest resident memory and seconds are reported; the file is removed afterwards. For comparison the same fit on the
first hundredth of the rows, which fits in memory anywhere: the difference is what a hundred times the rows cost. Part
of the file may come from the system's page cache, which is what is left of memory; `--cold` asks the system to drop
it first.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import flat, printed, save
from jaxwhiten import Moments

BLOCK = 16_384

# Runs in a process of its own: the fit, then what the system says of the process.
FIT = """
import json, sys, time
from eval.machine import peak_memory
from jaxwhiten.commands import cli
start = time.perf_counter()
if cli.main(["fit", sys.argv[1], "--moments", sys.argv[2], "--output", sys.argv[3], "--overwrite"]):
    sys.exit("the fit failed")
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "peak_gb": peak_memory()}))
"""


def write_rows(path: Path, n: int, width: int, seed: int = 0) -> np.ndarray:
    """Writes n rows with a mean and a decaying spectrum; every block is drawn anew.

    Returns:
      The sum of all rows, in float64.
    """
    rng = np.random.default_rng(seed)
    rotation = (np.linalg.qr(rng.standard_normal((width, width)))[0] * np.arange(1, width + 1) ** -0.5).T
    rotation = rotation.astype(np.float32)
    mean = rng.standard_normal(width, np.float32) / 5
    total = np.zeros(width)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, width)})
        for start in range(0, n, BLOCK):
            block = rng.standard_normal((min(BLOCK, n - start), width), np.float32) @ rotation + mean
            total += block.sum(axis=0, dtype=np.float64)
            file.write(block.data)
        file.flush()
        os.fsync(file.fileno())
    return total


def fit(path: Path, folder: Path) -> dict[str, float]:
    """`jaxwhiten fit` on a file: seconds and peak resident GB."""
    figures = printed(["-c", FIT, str(path), str(folder / "moments.safetensors"), str(folder / "w.safetensors")])
    return {**figures, "gb": path.stat().st_size / 1e9, "gb_per_second": path.stat().st_size / 1e9 / figures["seconds"]}


def drop_cache(path: Path) -> None:
    """Asks the system to forget a file's pages, which are on disk."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gb", type=float, default=10.0, help="size of the file in 10^9 bytes")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--folder", help="where to write it; by default a temporary folder")
    parser.add_argument("--cold", action="store_true", help="drop the file from the page cache before the fit")
    args = parser.parse_args()
    n = int(args.gb * 1e9 / (4 * args.width))
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        small = folder / "small.npy"
        large = folder / "large.npy"
        write_rows(small, max(n // 100, 2), args.width)
        start = time.perf_counter()
        total = write_rows(large, n, args.width)
        print(f"wrote {n:,} x {args.width}, {large.stat().st_size / 1e9:.2f} GB, {time.perf_counter() - start:.0f} s")
        figures = {}
        for label, path in (("a hundredth", small), ("all", large)):
            if args.cold:
                drop_cache(path)
            figures[label] = fit(path, folder)
            row = figures[label]
            print(
                f"{label:>12}: {row['gb']:7.2f} GB in {row['seconds']:6.1f} s, {row['gb_per_second']:.2f} GB/s, "
                f"peak resident {row['peak_gb']:.2f} GB"
            )
        moments = Moments.load(folder / "moments.safetensors")
        error = float(np.abs(moments.mean - total / n).max() / np.abs(moments.mean).max())
        print(f"n {moments.n:,}; mean off by {error:.1e} of its largest entry")
    save("out_of_core", flat(figures, "file"), vectors=n, width=args.width, cold=args.cold, mean_error=error)


if __name__ == "__main__":
    main()
