"""Parts of an embedded corpus: Parquet files, each complete or absent, and their records.

A folder holds `plan.json`, which is written first and names everything that all parts depend on; for each part its
moments if they are requested, its vectors, and its record, which marks the part as done; and `manifest.json`, which is
written after all parts. To resume, a run reads only the records: one per part, for any number of rows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import vectors_of
from jaxwhiten.coded import with_code
from jaxwhiten.codes import Code, load_code
from jaxwhiten.datasets.chunks import Chunk, Position, Source, chunks
from jaxwhiten.encoding import arrow
from jaxwhiten.errors import FormatError, MismatchError, NonFiniteError, optional
from jaxwhiten.whitening import Moments, grouped

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder

PART_ROWS = 65_536
_PLAN, _FINISHED, _CODE, _DEAD = "plan.json", "manifest.json", "code.safetensors", "dead-letters.jsonl"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that parts depend on: `Encoder.encoding`, whose fingerprint includes the head, and `Source.facts`."""

    encoding: dict[str, Any]
    dimension: int
    dtype: str
    inputs: list[dict[str, Any]]
    part_rows: int = PART_ROWS
    moments: bool = False
    skip_bad: bool = False

    @classmethod
    def of(cls, encoder: Encoder, sources: list[Source], float16: bool = False, **how: Any) -> Plan:
        """The plan to embed files with an encoder and its prompt for documents."""
        encoding, coded = encoder.encoding(prompt=encoder.prompt_for("document")), encoder.head.code is not None
        if encoder.head.code is not None:
            encoding["code"] = encoder.head.code.name
        dtype = np.dtype(encoder.head.dtype if coded or not float16 else np.float16).name
        return cls(encoding, encoder.dimension, dtype, [source.facts() for source in sources], **how)

    @property
    def hash(self) -> str:
        return io.content_key(dataclasses.asdict(self))

    def sources(self) -> list[Source]:
        return [Source(*(fact[name] for name in ("path", "format", "column", "ids"))) for fact in self.inputs]


class Parts:
    """A folder of parts and its plan.

    FormatError if the folder has no plan and none is given; MismatchError if its parts were made by another plan.
    """

    def __init__(self, folder: io.PathLike, plan: Plan | None = None):
        self.folder = Path(folder)
        path = self.folder / _PLAN
        if plan is None or path.is_file():
            try:
                told = Plan(**json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError, RecursionError) as error:
                raise FormatError(f"{path}: not a readable plan ({error}). Embed the corpus again.") from error
            if plan is not None and plan.hash != told.hash:
                pairs = zip(dataclasses.asdict(told).items(), dataclasses.asdict(plan).values(), strict=True)
                other = ", ".join(name for (name, was), now in pairs if was != now)
                raise MismatchError(
                    f"{folder}: its parts are of plan {told.hash[:16]}, these settings of {plan.hash[:16]}, which"
                    f" differ in {other}: name another folder, or give the settings that it was begun with."
                )
            plan = told
        self.plan = plan

    def begin(self, encoder: Encoder) -> None:
        """Writes the code, if there is one, and then the plan, unless the folder has a plan already."""
        if not (self.folder / _PLAN).is_file():
            if encoder.head.code is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                encoder.head.code.save(self.folder / _CODE)
            io.write_json(self.folder / _PLAN, dataclasses.asdict(self.plan))
        io.remove_stale(self.folder)

    def _file(self, number: int, ending: str) -> Path:
        return self.folder / f"part-{number:06d}{ending}"

    def records(self) -> dict[int, dict[str, Any]]:
        """The records of finished parts by number; a record whose part is missing does not count."""
        finished = self.folder / _FINISHED
        try:
            if finished.is_file():
                found = json.loads(finished.read_text(encoding="utf-8"))["parts"]
            else:
                found = [json.loads(file.read_text(encoding="utf-8")) for file in self.folder.glob("part-*.json")]
            return {part["part"]: part for part in found if self._file(part["part"], ".parquet").is_file()}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise FormatError(f"{self.folder}: its records cannot be read ({error}). Embed it again.") from error

    def missing(self) -> Iterator[Chunk]:
        """The chunks of the corpus that have no part yet."""
        done = {number: (Position(*part["end"]), part["last"]) for number, part in self.records().items()}
        return chunks(self.plan.sources(), self.plan.part_rows, self.plan.skip_bad, done)

    def write(self, encoder: Encoder, chunk: Chunk) -> dict[str, Any]:
        """Embeds a chunk and writes its part: moments, vectors, and then the record, which is returned."""
        pq = optional("pyarrow.parquet", "data", "Writing Parquet", "pyarrow")
        rows = [row for row in chunk.rows if row.text is not None]
        dtype = self.plan.dtype if encoder.head.code is None else None
        told = {"plan": self.plan.hash, "encoding": self.plan.encoding}
        found = arrow.embedded(encoder, [row.text for row in rows], {"id": [row.id for row in rows]}, dtype, **told)
        record = {
            "part": chunk.number,
            "file": chunk.source.path,
            "start": chunk.start,
            "end": chunk.rows[-1].end if chunk.rows else chunk.start,
            "last": chunk.last,
            "rows": len(rows),
            "plan": self.plan.hash,
            "dead": [(row.end.line, row.error) for row in chunk.rows if row.text is None],
        }
        if self.plan.moments:
            path = self._file(chunk.number, ".moments.safetensors")
            try:
                moments = grouped.sums(self._vectors(found, encoder.head.code))
            except NonFiniteError as error:
                raise NonFiniteError(f"{chunk.source.path}, rows from {chunk.start.line + 1} on: {error}") from error
            moments.save(path, self.plan.encoding)
            record["moments"] = io.sha256_file(path)
        with io.atomic_path(self._file(chunk.number, ".parquet")) as temporary:
            pq.write_table(found.drop_columns("error"), temporary)
        io.write_json(self._file(chunk.number, ".json"), record)
        return record

    def finish(self) -> dict[str, Any]:
        """Writes the list of bad rows and then the manifest of all parts; returns the manifest's totals."""
        parts = [part for _, part in sorted(self.records().items())]
        dead = [{"file": part["file"], "row": row, "error": why} for part in parts for row, why in part["dead"]]
        if dead:
            lines = (json.dumps(letter, ensure_ascii=False) + "\n" for letter in dead)
            io.write_text(self.folder / _DEAD, "".join(lines))
        total = {"rows": sum(part["rows"] for part in parts), "dead": len(dead), "plan": self.plan.hash}
        io.write_json(self.folder / _FINISHED, {**total, "parts": parts})
        return total

    def _finished(self) -> dict[int, dict[str, Any]]:
        records = self.records()
        if not (self.folder / _FINISHED).is_file() or next(self.missing(), None) is not None:
            raise FormatError(
                f"{self.folder}: not finished, {len(records)} parts are done: run `jaxwhiten embed` again."
            )
        return records

    def _vectors(self, table: Any, code: Code | None) -> np.ndarray:
        name = "vector" if code is None else "code"
        return with_code(vectors_of(table[name]).view(self.plan.dtype), code)

    def blocks(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """Ids and vectors, or codes that know their code, part after part; FormatError for a part that is damaged."""
        pq = optional("pyarrow.parquet", "data", "Reading Parquet", "pyarrow")
        code = load_code(self.folder / _CODE) if "code" in self.plan.encoding else None
        for number, record in sorted(self._finished().items()):
            path = self._file(number, ".parquet")
            try:
                found = pq.read_table(path)
                told = json.loads(found.schema.metadata[b"jaxwhiten"])
                if told["plan"] != self.plan.hash or len(found) != record["rows"]:
                    raise ValueError("it is not the part that was recorded")
                vectors = self._vectors(found, code)
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise FormatError(f"{path}: {error}. Remove it, and run `jaxwhiten embed` again.") from error
            yield found["id"].to_pylist(), vectors

    def all(self) -> tuple[list[str], np.ndarray]:
        """All `blocks` concatenated in memory."""
        ids, vectors = zip(*self.blocks(), strict=True)
        return [id for some in ids for id in some], np.concatenate(vectors)

    def moments(self) -> Moments:
        """The moments of all vectors: merged from the parts' moments if they were stored, else made in one pass."""
        total = Moments()
        for number, record in sorted(self._finished().items()) if self.plan.moments else ():
            path = self._file(number, ".moments.safetensors")
            part = Moments.load(path)
            if io.sha256_file(path) != record["moments"]:
                raise FormatError(f"{path}: not the moments that were recorded. Embed its part again.")
            total.merge(part)
        for _, vectors in () if self.plan.moments else self.blocks():
            total.merge(grouped.sums(vectors))
        return total
