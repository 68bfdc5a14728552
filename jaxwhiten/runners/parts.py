"""Files embedded into parts: Parquet files, each complete or absent, and their records; here or by Ray's actors.

A folder holds `plan.json`, which is written first and names everything that all parts depend on; for each part its
vectors, and its record, which marks the part as done; and `manifest.json`, which is written after all parts. To resume,
a run reads only the records: one per part, for any number of rows.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np

from jaxwhiten import io
from jaxwhiten.codes import Code, load_code
from jaxwhiten.datasets.chunks import Chunk, Position, Source, by_source, chunks, rows
from jaxwhiten.datasets.textfile import BadRows
from jaxwhiten.encoding import Encoder, arrow
from jaxwhiten.errors import REASON, FormatError, InputError, MismatchError, optional, turning
from jaxwhiten.space import Space, check_space
from jaxwhiten.terminal.bars import Progress
from jaxwhiten.types import Json
from jaxwhiten.vectors import with_space
from jaxwhiten.whitening import Moments

T = TypeVar("T")
PART_ROWS = 65_536
_PLAN = "plan.json"
_FINISHED = "manifest.json"
_CODE = "code.safetensors"
_DEAD = "dead-letters.jsonl"
_PARQUET = "data", "A corpus in Parquet files", "pyarrow"


@dataclasses.dataclass(frozen=True)
class EmbedPlan:
    """Everything that parts depend on: the space of their vectors and the sources; and whether the model is tuned."""

    space: Space
    dimension: int
    dtype: str
    inputs: list[Source]
    part_rows: int = PART_ROWS
    skip_bad: bool = False
    tuned: bool | None = None

    @classmethod
    def of(cls, encoder: Encoder, sources: list[Source], float16: bool = False, **how: Any) -> EmbedPlan:
        """The plan to embed files with an encoder and its prompt for documents."""
        view = encoder.documents
        dtype = np.dtype(np.float16 if float16 and view.code is None else view.head.dtype)
        return cls(view.space, view.dimension, dtype.name, sources, tuned=view.tuned, **how)

    @functools.cached_property
    def hash(self) -> str:
        return io.content_key(dataclasses.asdict(self) | {"tuned": None})

    @property
    def provenance(self) -> Json:
        """What files of the vectors record."""
        return {**self.space.record(), "tuned": self.tuned}


class PartRecord(TypedDict):
    """What was written of a finished part."""

    part: int
    file: str
    column: str | None
    stat: list[int]
    start: list[int]
    end: list[int]
    last: bool
    dead: list[list[Any]]
    texts: str  # a hash
    rows: int
    plan: str
    sha256: str


class Manifest(TypedDict):
    """What is read of the totals of a complete run."""

    parts: int


def _read(path: Path, kind: type[T]) -> T:
    return io.read_json(io.below(path.parent, path.name), kind, "Re-embed the corpus.")


class Parts:
    """A folder of parts and its plan.

    FormatError if the folder has no plan and none is given; MismatchError if its parts were made by another plan.
    """

    def __init__(self, folder: io.PathLike, plan: EmbedPlan | None = None):
        self.folder = Path(folder)
        path = self.folder / _PLAN
        if plan is None or path.is_file():
            written = _read(path, EmbedPlan)
            if plan is not None and plan.hash != written.hash:
                check_space(folder, written.space, plan.space, "use a different folder, or `overwrite`")
                was = dataclasses.asdict(written)
                other = ", ".join(name for name, now in dataclasses.asdict(plan).items() if was[name] != now)
                raise MismatchError(
                    f"{folder}: its shards follow plan {written.hash[:16]}, these settings {plan.hash[:16]}, which"
                    f" differs in {other}: use a different folder, the original settings, or `overwrite`."
                )
            plan = written
        self.plan = plan
        self._checked = dict[Source, list[int]]()  # the state in which a source was compared with its parts

    def begin(self, encoder: Encoder) -> None:
        """Writes the code, if there is one, and then the plan, unless the folder has a plan already.

        Raises InputError for a folder that is read-only, or that holds files but no plan.
        """
        optional("pyarrow", *_PARQUET)  # an error now, before anything is encoded
        folder = io.replaceable(self.folder)
        if not (self.folder / _PLAN).is_file():
            for path in folder.glob("*"):
                if path.name != _CODE and path.suffix != ".tmp":
                    raise InputError(
                        f"{self.folder}: contains {path.name}; expected a folder of shards. Specify a new folder."
                    )
            if encoder.view.head.code is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                encoder.view.head.code.save(self.folder / _CODE)
            io.write_json(self.folder / _PLAN, dataclasses.asdict(self.plan))
        io.remove_stale(self.folder)

    def _file(self, number: int, ending: str) -> Path:
        return self.folder / f"part-{number:06d}{ending}"

    def records(self) -> dict[int, PartRecord]:
        """The records of finished parts by number; a record whose part is missing does not count."""
        parts = [_read(path, PartRecord) for path in sorted(self.folder.glob("part-*.json"))]
        if other := [part for part in parts if not len(part["start"]) == len(part["end"]) == len(Position())]:
            raise FormatError(f"{self.folder}: shard {other[0]['part']} has no position. Re-embed the corpus.")
        return {part["part"]: part for part in parts if self._file(part["part"], ".parquet").is_file()}

    def missing(self) -> Iterator[Chunk]:
        """The chunks of the corpus that have no part yet."""
        return chunks(self.plan.inputs, self.plan.part_rows, self.plan.skip_bad, self.records(), self._check)

    def _check(self, source: Source) -> None:
        """Compares the texts of a source's finished parts with the file; MismatchError names the first that differs."""
        self._checked[source] = source.stat()
        parts = sorted(by_source(self.records().values()).get(source.key, ()), key=lambda part: part["end"])
        starts, ends = ([part[name][0] for part in parts] for name in ("start", "end"))
        with contextlib.closing(rows(source, skip_bad=True)) as all_rows:
            lines = ((row.end.line, row.text) for row in all_rows if row.text is not None)
            by_part = itertools.groupby(lines, lambda line: bisect.bisect_left(ends, line[0]))
            texts = {
                number: io.content_key([text for line, text in group if line > starts[number]])
                for number, group in by_part
                if number < len(parts)
            }
        for number, part in enumerate(parts):
            if texts.get(number, io.content_key([])) != part["texts"]:
                raise MismatchError(
                    f"{source.path}, rows {starts[number] + 1} to {ends[number]}: changed after they were embedded in"
                    f" shard {part['part']} of {self.folder}. Restore the file, or embed it into a new folder."
                )

    def _table(self, part: PartRecord) -> Any:
        """The table of a part's record; FormatError if it cannot be read."""
        path = io.below(self.folder, self._file(part["part"], ".parquet").name)
        message = f"{path}: {REASON}. Delete it, and rerun `jaxwhiten embed`."
        with turning(FormatError, message, OSError, ValueError, FormatError):
            io.same("plan", part["plan"], self.plan.hash)
            io.same("checksum", io.sha256_file(path), part["sha256"])
            return optional("pyarrow.parquet", *_PARQUET).read_table(path)

    def write(self, encoder: Encoder, chunk: Chunk) -> Json:
        """Embeds a chunk and writes its part: vectors, and then the record, which is returned."""
        (self.folder / _FINISHED).unlink(missing_ok=True)
        good = [(row, row.text) for row in chunk.rows if row.text is not None]
        texts = [text for _, text in good]
        table = arrow.embedded(encoder, texts, {"id": [str(row.id) for row, _ in good]}, self.plan.dtype)
        record = chunk.record()
        bad = BadRows(chunk.source.path, self.plan.skip_bad)
        for (row, text), why in zip(good, table["error"].to_pylist(), strict=True):
            if why is not None:
                bad(row.end.line, f"{text!r:.60}: {why}")
                record["dead"].append((row.end.line, why))
        if bad.count:
            table = table.filter(table["error"].is_null())
        record |= {"dead": sorted(record["dead"]), "texts": io.content_key(texts), "rows": len(table)}
        with io.atomic_path(self._file(chunk.number, ".parquet")) as temporary:
            optional("pyarrow.parquet", *_PARQUET).write_table(table.drop_columns("error"), temporary)
            record |= {"plan": self.plan.hash, "sha256": io.sha256_file(temporary)}
        io.write_json(self._file(chunk.number, ".json"), record)
        return record

    def finish(self) -> Json:
        """Writes the list of bad rows and then the manifest of all parts; returns the manifest's totals.

        Raises MismatchError for a text that has changed since it was embedded.
        """
        parts = [*self.records().values()]
        finished = by_source(parts)
        for source in self.plan.inputs:
            seen = [self._checked.get(source), *(part["stat"] for part in finished.get(source.key, ()))]
            if source.stat() not in seen:
                self._check(source)
        dead = [{"file": part["file"], "row": row, "error": why} for part in parts for row, why in part["dead"]]
        if dead:
            io.write_text(self.folder / _DEAD, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in dead))
        total = {"rows": sum(part["rows"] for part in parts), "dead": len(dead), "plan": self.plan.hash}
        io.write_json(self.folder / _FINISHED, {**total, "parts": len(parts)})
        return total

    def _finished(self) -> list[PartRecord]:
        records = [*self.records().values()]
        finished = self.folder / _FINISHED
        if finished.is_file() and len(records) == _read(finished, Manifest)["parts"]:
            return records
        raise FormatError(f"{self.folder}: not finished, {len(records)} shards are done: rerun `jaxwhiten embed`.")

    @functools.cached_property
    def _code(self) -> Code | None:
        return load_code(self.folder / _CODE) if self.plan.space.code else None

    def blocks(self) -> Iterator[tuple[list[str], Any]]:
        """Ids and vectors, or codes that know their code, part after part; FormatError for a part that is damaged."""
        for record in self._finished():
            table = self._table(record)
            yield table["id"].to_pylist(), arrow.vectors(table, self._code)

    def all(self) -> tuple[list[str], np.ndarray]:
        """All `blocks`, one after the other: ids, and vectors or codes in a memory map of a temporary file."""
        shape = (sum(record["rows"] for record in self._finished()), self.plan.dimension)
        dtype = np.dtype(self.plan.dtype)
        with io.writing(tempfile.gettempdir()), tempfile.TemporaryFile(prefix="jaxwhiten-") as file:
            io.reserve(file, math.prod(shape) * dtype.itemsize)
            joined = np.memmap(file, dtype, "w+", shape=shape)
        ids = list[str]()
        for some, vectors in self.blocks():
            joined[len(ids) : len(ids) + len(some)] = vectors
            ids += some
        return ids, with_space(joined, self.plan.space, self._code)

    def moments(self) -> Moments:
        """The moments of all vectors."""
        total = functools.reduce(Moments.merge, (arrow.sums(vectors) for _, vectors in self.blocks()), Moments())
        total.provenance = self.plan.provenance
        return total


def _clear(folder: Path) -> None:
    """Removes the files of a run, its plan last: until then, the folder is one of parts."""
    if (folder / _PLAN).is_file():
        for path in [*folder.glob("part-*"), *(folder / name for name in (_FINISHED, _DEAD, _CODE, _PLAN))]:
            path.unlink(missing_ok=True)


def embed_files(
    sources: Sequence[Source],
    folder: io.PathLike,
    encoder: Encoder,
    *,
    ray: int = 0,
    show_progress: bool | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Json:
    """Embeds files into parts; a killed run resumes with the missing parts, unless they are to be overwritten.

    `ray` is the number of Ray workers, each with a copy of the encoder; 0 for this process. `options` are those of
    `EmbedPlan.of`. Returns the numbers of rows written and of bad rows left out, and the plan's hash. DataError names
    file and line of a bad row; MismatchError names both hashes if the folder holds parts of another plan.
    """
    plan = EmbedPlan.of(encoder, list(sources), **options)
    if overwrite:
        _clear(Path(folder))
    parts = Parts(folder, plan)
    parts.begin(encoder)
    if ray:
        from jaxwhiten.runners.ray import write_parts

        written = write_parts(parts, encoder, parts.missing(), ray)
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
