"""`jaxwhiten apply FILE VECTORS --output FILE`: whitens or codes a file of vectors block by block."""

from __future__ import annotations

import argparse
from typing import Any

from jaxwhiten.commands.arguments import VECTORS, Output, Report, Source, add, add_knobs, load_whitening
from jaxwhiten.errors import InputError, check_width

_BLOCK_BYTES = 256 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "whitening", "a saved whitening or code", type=Source)
    add(parser, "vectors", "a .npy file [n, d]; it is memory-mapped, so it may exceed the memory", type=Source)
    what = ".npy, .parquet or .jsonl; - for JSON lines on stdout"
    add(parser, "-o --output OUTPUT", what, type=Output(endings=VECTORS), required=True)
    add_knobs(parser)
    add(parser, "--normalize", "scale the vectors to unit length")


def run(args: argparse.Namespace) -> Report | None:
    import numpy as np

    from jaxwhiten.arrays import as_matrix, normalize, work_dtype
    from jaxwhiten.bars import Progress
    from jaxwhiten.codes import Code
    from jaxwhiten.commands.vectors import open_vectors, vector_writer, written

    vectors = open_vectors(args.vectors)
    fitted = load_whitening(args.whitening, args)
    code = fitted if isinstance(fitted, Code) else None
    if code is not None and args.normalize:
        raise InputError(f"{args.whitening}: contains a code, which cannot be scaled: omit `normalize`.")
    n = len(vectors)
    d = as_matrix(vectors[:1]).shape[1]
    check_width(f"fit in {args.whitening}", fitted.n_features_in_, d, args.vectors)
    dtype = work_dtype(vectors.dtype)
    width = fitted.nbytes if isinstance(fitted, Code) else fitted.n_components or d
    function: Any = fitted.encode if isinstance(fitted, Code) else fitted.transform
    rows = max(1, _BLOCK_BYTES // (d * dtype.itemsize))
    progress = Progress(total=n, desc="apply", unit="row", delay=1, leave=False)
    with vector_writer(args.output, width, dtype if code is None else np.uint8, code) as write, progress:
        for start in range(0, n, rows):
            block = function(vectors[start : start + rows])
            write(None, normalize(block) if args.normalize else block)
            progress.update(len(block))
    return written(args.output, n, width, code)
