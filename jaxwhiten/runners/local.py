"""Files to parts on this machine, or on Ray's actors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tqdm import tqdm

from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import check_name
from jaxwhiten.io import PathLike
from jaxwhiten.runners.parts import Parts, Plan
from jaxwhiten.runners.rows import Chunk, Source

RUNNERS = ("local", "ray")


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
    """Embeds files into parts; a run that was killed goes on with what is missing.

    Args:
      sources: The files, in the order of the parts.
      folder: Of the parts.
      encoder: On Ray, each worker gets a copy.
      runner: `"local"` or `"ray"`.
      workers: Of Ray.
      show_progress: True or False; None shows a bar on a terminal.
      **how: `float16`, and `part_rows`, `moments` and `skip_bad` of `Plan`.

    Returns:
      rows, dead and plan: the vectors written, the bad rows left out, and the plan's hash.

    Raises:
      DataError: A row is bad, with its file and line, and bad rows are not skipped.
      MismatchError: The folder holds parts of another plan, whose hash is told.
    """
    check_name("runner", runner, RUNNERS)
    parts = Parts(folder, Plan.of(encoder, list(sources), **how))
    parts.begin(encoder)
    rows = bytes_read = 0
    with tqdm(unit="row", desc="embed", disable=None if show_progress is None else not show_progress) as bar:
        for record in _written(parts, encoder, runner, workers):
            rows += record["rows"]
            bytes_read += record["end"][1] - record["start"][1]
            if bytes_read:  # of text files: time left by the rows that their bytes hold so far
                bar.total = round(sum(source["size"] for source in parts.plan.inputs) * rows / bytes_read)
            bar.update(record["rows"])
    return parts.finish()


def _written(parts: Parts, encoder: Encoder, runner: str, workers: int) -> Iterator[dict[str, Any]]:
    missing: Iterator[Chunk] = parts.missing()
    if runner == "ray":
        from jaxwhiten.runners.ray import write_parts

        return write_parts(parts, encoder, missing, workers)
    return (parts.write(encoder, chunk) for chunk in missing)
