"""`jaxwhiten apply`: whitens or codes a file of vectors block by block."""

from __future__ import annotations

from typing import Any, Unpack

from jaxwhiten.commands.arguments import Knobs, Output, Report, Source, load_whitening, new_vectors, written
from jaxwhiten.errors import InputError, check_width

_BLOCK_BYTES = 256 << 20


def apply(
    whitening: Source,
    vectors: Source,
    /,
    *,
    output: Output,
    normalize: bool = False,
    overwrite: bool = False,
    **knobs: Unpack[Knobs],
) -> Report | None:
    """Whiten or code a file of vectors.

    Args:
      whitening: a saved whitening or code
      vectors: a .npy file [n, d]; it is memory-mapped, so it may exceed the memory
      output: .npy, .parquet or .jsonl; - for JSON lines on stdout
      normalize: scale the vectors to unit length
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten apply whitening.safetensors vectors.npy -k 128 -o whitened.npy
    """
    new_vectors(output, overwrite=overwrite)
    import numpy as np

    from jaxwhiten.arrays import as_matrix, work_dtype
    from jaxwhiten.arrays import normalize as to_unit_length
    from jaxwhiten.bars import Progress
    from jaxwhiten.codes import Code
    from jaxwhiten.codes.files import open_vectors, vector_writer

    rows = open_vectors(vectors)
    fitted = load_whitening(whitening, knobs)
    code = fitted if isinstance(fitted, Code) else None
    if code is not None and normalize:
        raise InputError(f"{whitening}: contains a code, which cannot be scaled: omit `normalize`.")
    n = len(rows)
    d = as_matrix(rows[:1]).shape[1]
    check_width(f"fit in {whitening}", fitted.n_features_in_, d, vectors)
    dtype = work_dtype(rows.dtype)
    width = fitted.nbytes if isinstance(fitted, Code) else fitted.n_components or d
    function: Any = fitted.encode if isinstance(fitted, Code) else fitted.transform
    step = max(1, _BLOCK_BYTES // (d * dtype.itemsize))
    progress = Progress(total=n, desc="apply", unit="row", delay=1, leave=False)
    with vector_writer(output, width, dtype if code is None else np.uint8, code) as write, progress:
        for start in range(0, n, step):
            block = function(rows[start : start + step])
            write(None, to_unit_length(block) if normalize else block)
            progress.update(len(block))
    return written(output, n, width, code)
