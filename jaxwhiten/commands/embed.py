"""`jaxwhiten embed INPUT... --output DIR`: embeds a corpus into parts on disk, which `fit` and `index` read."""

from __future__ import annotations

import argparse
import collections

from jaxwhiten.commands.arguments import Guarded, Output, Report, Source, add, add_model, add_tuned, load_encoder
from jaxwhiten.commands.texts import add_format, sources
from jaxwhiten.errors import Bounds, DataError, InputError, check_installed, check_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "files, folders or patterns with *: .txt (one text per line), .tsv, .csv, .jsonl or .parquet"
    add(parser, "inputs", what, type=Source, nargs="+", metavar="INPUT")
    add(parser, "-o --output DIR", "folder for the shards; rerun the command to resume", type=Guarded, required=True)
    add_format(parser)
    add(parser, "--id COLUMN", "ID column of a table; default: FILE:LINE below the common folder", dest="ids")
    add_model(parser)
    add_tuned(parser)
    add(parser, "--runner RUNNER", "local, or ray; default: local", default="local")
    add(parser, "--workers N", "number of Ray workers; default: 2", type=Bounds(1), default=2)
    add(parser, "--float16", "keep vectors in float16; default: float32")
    add(
        parser,
        "--part-rows N",
        "rows per shard; a killed run loses only unfinished ones; default: 65536",
        type=Bounds(1),
        default=65_536,
    )
    moments = "also write the moments of all vectors, for `jaxwhiten fit` and `merge`"
    add(parser, "--moments FILE", moments, type=Output("moments"))
    add(
        parser,
        "--skip-bad",
        "skip rows without text or a finite vector, and list them in DIR/dead-letters.jsonl",
    )


def run(args: argparse.Namespace) -> Report:
    import numpy as np

    from jaxwhiten.datasets.textfile import is_pipe
    from jaxwhiten.runners import Parts, embed_files
    from jaxwhiten.terminal import note

    check_name("runner", args.runner, ("local", "ray"))
    check_installed("pyarrow", "data", "A corpus in Parquet files")
    if args.runner == "ray":
        check_installed("ray", "ray", "Running on Ray")
    if pipe := next(filter(is_pipe, args.inputs), None):
        raise InputError(f"{pipe}: is a pipe, which cannot be resumed: save what it sends in a file, or use `encode`.")
    files = sources(args.inputs, args.format, args.column, args.ids)
    twice, count = collections.Counter(file.path for file in files).most_common(1)[0]
    if count > 1:
        raise InputError(f"{twice}: is listed twice, so its rows would have the same IDs. List it once.")
    encoder = load_encoder(args)
    done = embed_files(
        files,
        args.output,
        encoder,
        runner=args.runner,
        workers=args.workers,
        part_rows=args.part_rows,
        float16=args.float16,
        moments=bool(args.moments),
        skip_bad=args.skip_bad,
        overwrite=args.overwrite,
    )
    if not done["rows"]:
        raise DataError(f"{', '.join(args.inputs)}: contains no texts.")
    parts = Parts(args.output)
    if args.moments:
        parts.moments().save(args.moments, {**parts.plan.provenance, "corpus": args.output})
    size = encoder.dimension * np.dtype(parts.plan.dtype).itemsize
    if done["dead"]:
        note(f"{done['dead']:,} invalid rows skipped, see {args.output}/dead-letters.jsonl")
    if encoder.view.head.code:
        what = f"codes of {size} bytes"
    else:
        what = f"{encoder.dimension}-dimensional vectors, {size} bytes each"
    return Report(f"{args.output}: {done['rows']:,} {what}", {"output": args.output, **done, "bytes": size})
