"""Embeds files into parts, on this machine or by Ray's actors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxwhiten.datasets.chunks import Source
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import check_name
from jaxwhiten.io import PathLike
from jaxwhiten.progress import Progress
from jaxwhiten.runners.parts import Parts, Plan


def embed_files(
    sources: Sequence[Source],
    folder: PathLike,
    encoder: Encoder,
    *,
    runner: str = "local",
    workers: int = 2,
    show_progress: bool | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Embeds files into parts; a killed run resumes with the missing parts.

    `runner` is `"local"` or `"ray"`; each of Ray's `workers` has a copy of the encoder. `how` are those of `Plan.of`.
    Returns the numbers of rows written and of bad rows left out, and the plan's hash. DataError names file and line of
    a bad row; MismatchError names both hashes if the folder holds parts of another plan.
    """
    check_name("runner", runner, ("local", "ray"))
    parts = Parts(folder, Plan.of(encoder, list(sources), **how))
    parts.begin(encoder)
    if runner == "ray":
        from jaxwhiten.runners.ray import write_parts

        written = write_parts(parts, encoder, parts.missing(), workers)
    else:
        written = (parts.write(encoder, chunk) for chunk in parts.missing())
    rows = bytes_read = 0
    size = sum(source.stat()[0] for source in sources)
    with Progress(show_progress, unit="row", desc="embed") as bar:
        for record in written:
            rows += record["rows"]
            bytes_read += record["end"][1] - record["start"][1]
            if bytes_read:  # for text files, remaining rows are estimated from rows per byte so far
                bar.total = round(size * rows / bytes_read)
            bar.update(record["rows"])
    return parts.finish()
