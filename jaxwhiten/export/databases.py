"""An encoder for a vector database: the map in front of the database's own quantizer, and the code that uses both.

LanceDB takes the points of a code from outside, and codes vectors with them. The other databases take floats and
quantize them by themselves, or take bits: the gain of a whitening comes from the map in front, with columns and γ
chosen for this quantizer.
"""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten import io
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.encoder import check_saving
from jaxwhiten.errors import InputError, MismatchError, MissingDependencyError, check_name, install_command
from jaxwhiten.export.cards import filled
from jaxwhiten.head import Normalize, Whiten
from jaxwhiten.space import Space, check_space
from jaxwhiten.text import Texts, as_texts
from jaxwhiten.types import Fields, Float64, Json
from jaxwhiten.whitening import Whitening, choose_gamma

MODEL = "model"
CODE = "recipe.py"
SETTINGS = "recipe.json"
POINTS = "code.npz"
LANCEDB = "lancedb"
_BYTES = 48  # of a vector, by default
_BLOCK = 8192  # texts added or removed at once


class Database(NamedTuple):
    """How a database stores vectors; `templates` has the code that uses it.

    >>> DATABASES["pgvector"].columns(48, most=384)
    384
    """

    packages: str  # of its client
    place: str  # the argument of `connect` in examples
    quantizer: str
    bits: int  # per column; 1 for signs of randomly rotated columns; 0 if each byte stands for several columns
    beside: int  # bytes that every vector needs in addition, for its length

    def columns(self, size: int, most: int) -> int:
        """The number of columns that fit `size` bytes, at most `most` unless columns are single bits."""
        if not self.bits:
            return most // size * size
        count = 8 * (size - self.beside) // self.bits
        if self.bits == 1:
            return count
        return min(count, most)


_SIGNS = "one bit per column, compared by Hamming distance"
_BESIDE = "with float32 on disk"
_GROUPS = f"each byte for a group of columns, trained, {_BESIDE}"

DATABASES = {
    "pgvector": Database("psycopg[binary]", "postgresql:///texts", _SIGNS, 1, 0),
    "qdrant": Database("qdrant-edge-py", "texts.qdrant", "TurboQuant of four bits, and a length", 4, 4),
    LANCEDB: Database("lancedb pylance", "texts.lance", _GROUPS, 0, 0),
    "milvus": Database("pymilvus milvus-lite", "texts.milvus.db", f"a byte per column, {_BESIDE}", 8, 0),
    "sqlite-vec": Database("sqlite-vec apsw", "texts.db", _SIGNS, 1, 0),
}


def code_of(database: str, columns: int, size: int, *, metadata: bool = False) -> str:
    """The code that opens a database, adds to it and queries it, for vectors of `columns` columns in `size` bytes.

    Rows are tuples of id and text, with `metadata` also of an object of JSON.

    >>> "import psycopg" in code_of("pgvector", columns=384, size=48)
    True
    """
    index = filled("lancedb_trained", bytes=size) if database == LANCEDB else ""
    return _rows(metadata) + filled(database, columns=columns, bytes=size, index=index)


def _names(metadata: bool) -> list[str]:
    return ["id", "text", *["metadata"] * metadata]


def _rows(metadata: bool) -> str:
    """The code for a row of any database."""
    return filled("rows", names=", ".join(f'"{name}"' for name in _names(metadata)))


def turn(inputs: int, outputs: int) -> Float64[np.ndarray, "inputs outputs"]:
    """A fixed random rotation; several are concatenated if there are more outputs than inputs.

    >>> np.allclose(turn(8, 8) @ turn(8, 8).T, np.eye(8))
    True
    """
    rng = np.random.default_rng(0)
    turns = [np.linalg.qr(rng.standard_normal((inputs, inputs)))[0] for _ in range(-(-outputs // inputs))]
    return np.hstack(turns)[:, :outputs]


def front(whitening: Whitening, database: str, size: int, gamma: float) -> Whiten:
    """The map in front of a database: mean and axes of a whitening, with as many columns as fit `size` bytes.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> front(Whitening().fit(rows), "qdrant", size=8, gamma=0.25).weight.shape
    (8, 8)
    """
    kind = DATABASES[database]
    varying = min(whitening.n_features_in_, whitening.rank_)
    if (columns := kind.columns(size, varying)) < 1:
        raise InputError(f"No vector of {varying} columns fits {size} bytes of {database}: {kind.quantizer}.")
    whitening = whitening.with_params(n_components=min(columns, varying), beta=1.0, gamma=gamma)
    if kind.bits != 1:
        return Whiten.of(whitening)
    rotation = turn(min(columns, varying), columns)
    weight, bias = (np.asarray(part @ rotation, np.float32) for part in whitening.kernel)
    return Whiten(weight, bias, None)


def save_database(
    folder: str | Path,
    encoder: Encoder,
    database: str,
    size: int | None = None,
    *,
    gamma: float | None = None,
    metadata: bool = False,
) -> Json:
    """Writes a model folder for a database, and the code that opens the database, adds to it and queries it.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> texts = load_sts("sts_sample").splits["test"].sentence1
    >>> save_database("pgvector", encoder.whiten(texts), "pgvector")["columns"]
    384

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole. It gets `model/`, which
        sentence-transformers and `Encoder.from_pretrained` load, `recipe.py` and `recipe.json`.
      encoder: An encoder with a whitening or a `SpectrumCode` in its head, whose mean and axes are used with β = 1;
        LanceDB stores vectors in the points of a code. Or one that is fine-tuned for similarity, without either: its
        vectors are stored unchanged, or the signs of their random rotation.
      database: A name of `DATABASES`.
      size: Bytes of a vector in the database; by default those of the code, 48 of a whitening, or those of all columns.
      gamma: Power of the scaling; by default that of `jaxwhiten.whitening.choose_gamma`.
      metadata: Whether rows have metadata: `add` then also takes a dictionary per text, and `query` returns it.

    Returns:
      The contents of `recipe.json`.

    Raises:
      InputError: The encoder needs a whitening and has none, or its columns do not fit into `size` bytes.
    """
    check_name("database", database, DATABASES)
    raw = encoder.with_view(encoder.view.unfitted)
    check_saving(raw)
    code = encoder.view.head.code
    if database == LANCEDB and isinstance(code, SpectrumCode):
        return _save_code(folder, encoder, code, size, metadata)
    kind = DATABASES[database]
    whitening = encoder.view.head.whitening
    if isinstance(code, SpectrumCode):
        size = size or code.nbytes
        whitening = whitening or code.axes
    settings: Json = {"database": database, "quantizer": kind.quantizer, "bytes": size or _BYTES}
    if whitening is None:
        map, settings["bytes"] = _unfitted(raw, database, size)
        scaling: Json = {}
        fitted: list[Any] = []
    else:
        gamma = choose_gamma(whitening, raw.view.tuned).gamma if gamma is None else float(gamma)
        map = [front(whitening, database, settings["bytes"], gamma)]
        scaling = {"beta": 1.0, "gamma": gamma}
        fitted = [x.tolist() for x in (whitening.mean_, whitening.eigenvalues_)]
    small = raw.with_view(raw.view.then(*map, Normalize()))
    settings |= {"columns": small.dimension, **scaling, "unit_length": True, "rotated_at_random": kind.bits == 1}
    # Equal on every machine that exports the same files, where the map in front may differ in the last digits.
    head = io.content_key(raw.view.head.fingerprint, fitted, database, settings["bytes"], scaling.get("gamma"))
    text = code_of(database, small.dimension, settings["bytes"], metadata=metadata)
    return _save(folder, small, raw, head, settings, text, metadata)


def _unfitted(raw: Encoder, database: str, size: int | None) -> tuple[list[Whiten], int]:
    """The map in front of a database for vectors that need no whitening, and the bytes; InputError if they do."""
    kind = DATABASES[database]
    count = raw.dimension
    fit = "`jaxwhiten fit TEXTS --model MODEL -o DIR/`"
    if not raw.view.tuned:
        raise InputError(f"{raw.name}: contains no whitening: add one with {fit}.")
    if size is None:
        size = -(-kind.bits * count // 8) + kind.beside or _BYTES
    columns = kind.columns(size, count)
    if columns < 1 or (kind.bits != 1 and columns < count):
        raise InputError(
            f"{database}: {size} bytes hold {max(columns, 0)} of {count} columns: pass more `bytes`, or keep the best"
            f" columns, with {fit}."
        )
    if kind.bits != 1:
        return [], size
    return [Whiten(np.asarray(turn(count, columns), np.float32), np.zeros(columns, np.float32), None)], size


def _save_code(folder: str | Path, encoder: Encoder, code: SpectrumCode, size: int | None, metadata: bool) -> Json:
    """`save_database` for a database that takes the points of a code: its vectors are Vᵀx.

    The database subtracts Vᵀμ, the center of its only partition, and codes the rest with the points of the code. Query
    vectors are scaled, so that Euclidean distances rank like cosines (`Quantizer.query_points`).
    """
    if size not in (None, code.nbytes):
        raise InputError(f"{encoder.name}: its code has {code.nbytes} bytes: omit `bytes`, or fit one of {size} bytes.")
    raw = encoder.with_view(encoder.view.uncoded)
    quantizer = code.quantizer()
    matrix = np.asarray(quantizer.affine.matrix, np.float32)
    turned = Whiten(matrix, np.zeros(quantizer.width, np.float32), None)
    small = raw.with_view(raw.view.then(turned))
    quantizer_of_ours = f"the points of a code of {code.nbytes} bytes, {_BESIDE}"
    settings = {"database": LANCEDB, "quantizer": quantizer_of_ours, "bytes": code.nbytes, "columns": small.dimension}
    settings |= {"unit_length": False, "rotated_at_random": False}
    head = io.content_key(encoder.view.head.fingerprint, LANCEDB)
    index = filled("lancedb_code", bits=quantizer.bits, stretch=quantizer.stretch)
    text = _rows(metadata) + filled(LANCEDB, columns=small.dimension, index=index)
    points = {"points": quantizer.centroids, "center": quantizer.center[0][None]}
    return _save(folder, small, raw, head, settings, text, metadata, points)


def _save(
    folder: str | Path,
    small: Encoder,
    raw: Encoder,
    head: str,
    settings: Json,
    code: str,
    metadata: bool,
    points: Mapping[str, Any] | None = None,
) -> Json:
    """Writes the folder of `save_database`, and returns the settings."""
    kind = DATABASES[settings["database"]]
    space = dataclasses.replace(raw.documents.space, head=head, dimension=small.dimension, dtype=None, engine=None)
    settings["space"] = space.record()
    text = repr(json.dumps(settings["space"]))
    rows = {"names": ", ".join(_names(metadata)), "third": ", metadata" * metadata}
    first = filled("head", **settings, **rows, packages=kind.packages, place=kind.place, text=text)
    with io.whole_folder(folder, kind="database") as whole:
        small.save(whole / MODEL)
        io.write_text(whole / CODE, first + code)
        io.write_json(whole / SETTINGS, settings)
        if points is not None:
            np.savez(whole / POINTS, **points)
    return settings


class Changes(NamedTuple):
    """How many texts a database got, had with other words, or lost.

    >>> Changes(added=2, changed=1, removed=0).added
    2
    """

    added: int
    changed: int
    removed: int


def fill(
    folder: str | Path,
    place: str,
    ids: Sequence[Any],
    texts: Texts,
    encode: Callable[[list[str]], np.ndarray],
    *,
    keep: bool = False,
    metadata: Sequence[Fields] | None = None,
) -> Changes:
    """Brings a database level with texts, their ids and metadata, by the code in a folder of `save_database`.

    Texts that are missing are added, those that differ in text or metadata are replaced, and those of other ids are
    removed. Equal ones are not encoded again.

    Args:
      folder: A folder of `save_database`.
      place: The argument of `connect` in its `recipe.py`.
      ids: One per text; they are stored as strings.
      texts: The texts, in any container of `jaxwhiten.text.as_texts`.
      encode: Maps texts to vectors by the folder's model.
      keep: Whether the database keeps what it has: missing texts are added, and nothing else is done.
      metadata: An object of JSON per text, for a folder saved with `metadata=True`.

    Raises:
      MismatchError: The database was filled by vectors of another space.
      InputError: The folder's code stores no metadata.
    """

    def check(place: str, recorded: str | bytes = "{}") -> None:
        # without a password
        place = re.sub(r"://[^@/]*@", "://", place)
        recorded_settings = json.loads(recorded)
        if not recorded_settings:
            raise MismatchError(f"{place} does not record the space of its vectors: use a different database.")
        spaces = Space.of(recorded_settings), Space.of(json.loads(code["SPACE"]))
        check_space(place, *spaces, "use a different database")

    try:
        code = runpy.run_path(str(Path(folder) / CODE))
    except ImportError as error:
        raise MissingDependencyError(f"{error.name} is not installed: {install_command('databases')}.") from error
    if metadata is not None and "metadata" not in code["NAMES"]:
        raise InputError(f"{Path(folder) / CODE}: stores no metadata: export the folder with metadata=True.")
    db = code["connect"](place, check)
    columns = [as_texts(texts), *([] if metadata is None else [metadata])]
    by_id = dict(zip(map(str, ids), zip(*columns, strict=True), strict=True))
    present = (
        {id: by_id.get(id) for id in code["known"](db)} if keep else {id: tuple(row) for id, *row in code["rows"](db)}
    )
    missing = [id for id in by_id if id not in present]
    changed = [id for id, row in by_id.items() if present.get(id, row) != row]
    removed = [] if keep else [id for id in present if id not in by_id]
    for part in _blocks([*missing, *changed]):
        new, *more = map(list, zip(*(by_id[id] for id in part), strict=True))
        code["add"](db, part, new, encode(new), *more)
    for part in _blocks(removed):
        code["remove"](db, part)
    if hasattr(db, "close"):
        db.close()
    return Changes(len(missing), len(changed), len(removed))


def _blocks(ids: list[str]) -> Iterator[list[str]]:
    return (ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK))
