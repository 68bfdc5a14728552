"""`jaxwhiten apply WHITENING VECTORS --output FILE`: whitens a file of vectors block by block."""

from __future__ import annotations

import argparse
import sys

from jaxwhiten.commands.arguments import add, add_knobs, load_whitening
from jaxwhiten.errors import MismatchError

_BLOCK_BYTES = 256 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "whitening", "a saved whitening")
    add(parser, "vectors", "a .npy file [n, d]; it is memory-mapped, so it may exceed the memory")
    add(parser, "-o --output OUTPUT", ".npy, .parquet or .jsonl; - for JSON lines on stdout", required=True)
    add_knobs(parser)
    add(parser, "--normalize", "scale the vectors to unit length")


def run(args: argparse.Namespace) -> None:
    from tqdm import tqdm

    from jaxwhiten.arrays import as_matrix, normalize, work_dtype
    from jaxwhiten.commands.vectors import check_output, open_vectors, vector_writer

    check_output(args.output)
    vectors = open_vectors(args.vectors)
    whitening = load_whitening(args.whitening, args)
    n, d = len(vectors), as_matrix(vectors[:1]).shape[1]
    if d != whitening.n_features_in_:
        raise MismatchError(
            f"{args.vectors}: vectors of {d} dimensions; {args.whitening} takes {whitening.n_features_in_}."
        )
    k = whitening.n_components or d
    dtype = work_dtype(vectors.dtype)
    rows = max(1, _BLOCK_BYTES // (d * dtype.itemsize))
    progress = tqdm(total=n, desc="apply", unit="row", disable=None, delay=1, leave=False)
    with vector_writer(args.output, k, dtype) as write, progress:
        for start in range(0, n, rows):
            block = whitening.transform(vectors[start : start + rows])
            write(None, normalize(block) if args.normalize else block)
            progress.update(len(block))
    if args.output != "-":
        print(f"{args.output}: {n:,} vectors of {k} dimensions", file=sys.stderr)
