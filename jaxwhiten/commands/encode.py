"""`jaxwhiten encode` and `jaxwhiten apply`: sentences or vectors to vectors, whitened or not, in bounded memory."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Unpack

from cyclopts import Parameter

from jaxwhiten.commands.arguments import (
    Knobs,
    Output,
    PreciseOptions,
    Report,
    Source,
    TableOptions,
    new_vectors,
    written,
)
from jaxwhiten.commands.texts import nonempty, sentences
from jaxwhiten.errors import InputError, check_width

_BLOCK_BYTES = 256 << 20


def encode(
    input: Source,
    /,
    *,
    output: Output,
    normalize: bool = False,
    block_size: Annotated[int, Parameter(name="--block")] = 16_384,
    overwrite: bool = False,
    table: TableOptions = TableOptions(),
    encoder: PreciseOptions = PreciseOptions(),
) -> Report | None:
    """Turn sentences into vectors, or into the codes of a model with a code.

    Args:
      input: sentences: .txt (one per line), .tsv, .csv, .jsonl or .parquet, a folder of such files; - for stdin
      output: .npy (float32, or uint8 codes), .parquet (text and embedding) or .jsonl; - for JSON lines on stdout
      normalize: scale the vectors to unit length
      block_size: sentences held at once
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten encode sentences.txt -o vectors.npy
      cat sentences.txt | jaxwhiten encode - -o - > vectors.jsonl
    """
    new_vectors(output, overwrite=overwrite)
    from jaxwhiten.codes.files import vector_writer
    from jaxwhiten.head import Normalize
    from jaxwhiten.terminal import counted, note
    from jaxwhiten.text import is_blank

    texts = nonempty(sentences(input, table), input)
    model = encoder.load()
    if normalize:
        model = model.with_view(model.view.then(Normalize()))
    n = blank = 0
    code = model.view.head.code
    begun = collections.deque[list[str]]()
    if code is not None and code.space is None:  # queries of these codes are encoded by this encoder
        code = code.in_space(model.view.uncoded.space)
    with vector_writer(output, model.dimension, model.view.head.dtype, code) as write:
        blocks: Any = model.encode_stream(remembered(texts, block_size, begun), block_size=block_size)
        for block in blocks:
            write(text_block := begun.popleft(), block)
            n += len(block)
            blank += sum(map(is_blank, text_block))
    if blank:
        note(f"{counted(blank, 'blank texts')}; encode keeps them, index skips them")
    return written(output, n, model.dimension, code)


def remembered(texts: Iterator[str], size: int, begun: collections.deque[list[str]]) -> Iterator[str]:
    """Passes texts on and appends each block to `begun` first, because an encoder reads up to two blocks ahead."""
    while block := list(itertools.islice(texts, size)):
        begun.append(block)
        yield from block


def apply(
    whitening: Source,
    vectors: Source,
    /,
    *,
    output: Output,
    overwrite: bool = False,
    **knobs: Unpack[Knobs],
) -> Report | None:
    """Whiten or code a file of vectors.

    Args:
      whitening: a saved whitening or code
      vectors: a .npy file [n, d]; it is memory-mapped, so it may exceed the memory
      output: .npy, .parquet or .jsonl; - for JSON lines on stdout
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten apply whitening.safetensors vectors.npy -k 128 -o whitened.npy
    """
    new_vectors(output, overwrite=overwrite)
    import numpy as np

    from jaxwhiten.arrays import as_matrix, work_dtype
    from jaxwhiten.codes import Code, load_fitted
    from jaxwhiten.codes.files import open_vectors, vector_writer
    from jaxwhiten.terminal.bars import Progress
    from jaxwhiten.whitening import Whitening

    rows = open_vectors(vectors)
    n = len(rows)
    d = as_matrix(rows[:1]).shape[1]
    dtype: np.dtype = work_dtype(rows.dtype)
    step = max(1, _BLOCK_BYTES // (d * dtype.itemsize))
    fitted: Any = load_fitted(whitening, (Whitening, Code))
    if knobs and isinstance(fitted, Code):
        omit = ", ".join(f"`{name}`" for name in knobs)
        raise InputError(f"{whitening}: contains a code, whose settings are fixed: omit {omit}, or refit it.")
    if knobs:
        fitted = fitted.with_params(**knobs)
    code: Code | None = None
    if isinstance(fitted, Code):
        code = fitted
        dtype = np.dtype(np.uint8)
        width = fitted.nbytes
        function = fitted.encode
    else:
        width = fitted.n_components or d
        function = fitted.transform
    check_width(f"fit in {whitening}", fitted.n_features_in_, d, vectors)
    progress = Progress(total=n, desc="apply", unit="row", delay=1, leave=False)
    with vector_writer(output, width, dtype, code) as write, progress:
        for start in range(0, n, step):
            block = function(rows[start : start + step])
            write(None, block)
            progress.update(len(block))
    return written(output, n, width, code)
