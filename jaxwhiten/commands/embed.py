"""`jaxwhiten embed`: embeds a corpus into parts on disk, which `fit` and `index` read."""

from __future__ import annotations

import collections

from jaxwhiten.commands.arguments import FittedOptions, Inputs, Output, Place, Report, TableOptions, new_file
from jaxwhiten.commands.texts import sources
from jaxwhiten.errors import Bounds, DataError, InputError, check_installed


def embed(
    *input: Inputs,
    output: Output,
    id: str | None = None,
    moments: Place | None = None,
    float16: bool = False,
    part_rows: int = 65_536,
    skip_bad: bool = False,
    ray: int = 0,
    overwrite: bool = False,
    table: TableOptions = TableOptions(),
    encoder: FittedOptions = FittedOptions(),
) -> Report:
    """Embed a corpus in resumable shards.

    Args:
      input: files, folders or patterns with *: .txt (one text per line), .tsv, .csv, .jsonl or .parquet
      output: folder for the shards; rerun the command to resume
      id: ID column of a table; default: FILE:LINE below the common folder
      moments: also write the moments of all vectors to this file, for `jaxwhiten fit`
      float16: keep vectors in float16; default: float32
      part_rows: rows per shard; a killed run loses only unfinished ones
      skip_bad: skip rows without text or a finite vector, and list them in dead-letters.jsonl of the output
      ray: number of Ray workers; default: none, but this process
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten embed "corpus/*.parquet" --column text --id id --moments moments.safetensors -o parts/
    """
    check_installed("pyarrow", "data", "A corpus in Parquet files")
    Bounds(0).check("ray", ray)
    if ray:
        check_installed("ray", "ray", "Running on Ray")
    Bounds(1).check("part_rows", part_rows)
    if moments:
        new_file(moments, "moments", overwrite=overwrite)

    import numpy as np

    from jaxwhiten.datasets.textfile import is_pipe
    from jaxwhiten.runners import Parts, embed_files
    from jaxwhiten.terminal import note

    if pipe := next(filter(is_pipe, input), None):
        raise InputError(f"{pipe}: is a pipe, which cannot be resumed: save what it sends in a file, or use `encode`.")
    files = sources(input, table, id)
    twice, count = collections.Counter(file.path for file in files).most_common(1)[0]
    if count > 1:
        raise InputError(f"{twice}: is listed twice, so its rows would have the same IDs. List it once.")
    model = encoder.load()
    done = embed_files(
        files,
        output,
        model,
        ray=ray,
        part_rows=part_rows,
        float16=float16,
        skip_bad=skip_bad,
        overwrite=overwrite,
    )
    if not done["rows"]:
        raise DataError(f"{', '.join(input)}: contains no texts.")
    parts = Parts(output)
    if moments:
        parts.moments().save(moments, {**parts.plan.provenance, "corpus": output})
    if done["dead"]:
        note(f"{done['dead']:,} invalid rows skipped, see {output}/dead-letters.jsonl")
    size = model.dimension * np.dtype(parts.plan.dtype).itemsize
    if model.view.head.code:
        what = f"codes of {size} bytes"
    else:
        what = f"{model.dimension}-dimensional vectors, {size} bytes each"
    return Report(f"{output}: {done['rows']:,} {what}", {"output": output, **done, "bytes": size})
