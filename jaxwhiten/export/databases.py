"""An encoder for a vector database: the map in front of the database's own quantiser, and the code that uses both.

No database takes codes of several bits from outside. Each takes floats and quantises them itself, or takes bits. The
gain of a whitening comes from the map in front, with columns and γ chosen for this quantiser.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from jaxwhiten import io
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import Encoder, is_tuned
from jaxwhiten.errors import InputError, MissingDependencyError, check_name, install_command
from jaxwhiten.head import Normalize, Whiten
from jaxwhiten.whitening import Whitening

MODEL, CODE, SETTINGS = "model", "recipe.py", "recipe.json"
_BLOCK = 8192  # texts added at once


class Database(NamedTuple):
    """How a database stores vectors, and the code that uses it."""

    packages: str  # of its client
    place: str  # the argument of `connect` in examples
    quantiser: str
    bits: int  # per column; 1 for signs of randomly rotated columns; 0 if each byte stands for several columns
    beside: int  # bytes that every vector needs in addition, for its length
    code: str

    def columns(self, size: int, most: int) -> int:
        """The number of columns that fit `size` bytes, at most `most` unless columns are single bits."""
        if not self.bits:
            return most // size * size
        count = 8 * (size - self.beside) // self.bits
        return count if self.bits == 1 else min(count, most)


_PGVECTOR = """
import psycopg
def connect(place):
    db = psycopg.connect(place, autocommit=True)
    db.execute("CREATE EXTENSION IF NOT EXISTS vector")
    db.execute("CREATE TABLE IF NOT EXISTS texts (id text PRIMARY KEY, text text, vector bit($columns))")
    return db
def stored(vector):
    return "".join("01"[x > 0] for x in vector.tolist())
def known(db):
    return {id for (id,) in db.execute("SELECT id FROM texts")}
def add(db, ids, texts, vectors):
    with db.cursor().copy("COPY texts (id, text, vector) FROM STDIN") as copy:
        for row in zip(ids, texts, map(stored, vectors)):
            copy.write_row(row)
def query(db, vector, count=10):
    nearest = "SELECT id, text FROM texts ORDER BY vector <~> %s::bit($columns) LIMIT %s"
    return db.execute(nearest, (stored(vector), count)).fetchall()
"""
_QDRANT = """
import uuid
from pathlib import Path
import qdrant_edge as qdrant
def connect(place):
    if Path(place).exists():
        return qdrant.EdgeShard.load(place)
    Path(place).mkdir(parents=True)
    how = {"distance": qdrant.Distance.Cosine, "datatype": qdrant.VectorStorageDatatype.Turbo4}
    return qdrant.EdgeShard.create(place, qdrant.EdgeConfig(qdrant.EdgeVectorParams($columns, **how)))
def known(db):
    points, _ = db.scroll(qdrant.ScrollRequest(limit=db.info().points_count + 1, with_payload=True))
    return {point.payload["id"] for point in points}
def add(db, ids, texts, vectors):
    rows = [(str(uuid.uuid5(uuid.NAMESPACE_URL, id)), id, text, x) for id, text, x in zip(ids, texts, vectors)]
    points = [qdrant.Point(number, x.tolist(), {"id": id, "text": text}) for number, id, text, x in rows]
    db.update(qdrant.UpdateOperation.upsert_points(points))
    db.optimize()
    db.flush()
def query(db, vector, count=10):
    nearest = qdrant.Query.Nearest(vector.tolist())
    found = db.query(qdrant.QueryRequest(count, query=nearest, with_payload=True))
    return [(point.payload["id"], point.payload["text"]) for point in found]
"""
_LANCEDB = """
import lancedb
import pyarrow as pa
from lancedb.index import IvfPq
def connect(place):
    schema = pa.schema({"id": pa.string(), "text": pa.string(), "vector": pa.list_(pa.float32(), $columns)})
    return lancedb.connect(place).create_table("texts", schema=schema, exist_ok=True)
def known(db):
    return set(db.search().select(["id"]).limit(db.count_rows() + 1).to_arrow()["id"].to_pylist())
def add(db, ids, texts, vectors):
    db.add([{"id": id, "text": text, "vector": vector} for id, text, vector in zip(ids, texts, vectors)])
    if db.list_indices():
        db.optimize()
    elif db.count_rows() >= 256:  # fewer do not train the codes, and are scanned as floats
        db.create_index("vector", config=IvfPq("cosine", num_partitions=1, num_sub_vectors=$bytes))
def query(db, vector, count=10):
    nearest = db.search(vector).distance_type("cosine").select(["id", "text", "_distance"])
    return [(row["id"], row["text"]) for row in nearest.limit(count).to_list()]
"""
_MILVUS = """
from pymilvus import DataType, MilvusClient
def connect(place):
    db = MilvusClient(place)
    if not db.has_collection("texts"):
        schema, index = db.create_schema(), db.prepare_index_params()
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=512)
        schema.add_field("text", DataType.VARCHAR, max_length=65535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=$columns)
        index.add_index("vector", index_type="IVF_SQ8", metric_type="COSINE", params={"nlist": 128})
        db.create_collection("texts", schema=schema, index_params=index)
    db.load_collection("texts")
    return db
def known(db):
    rows = db.query_iterator("texts", batch_size=1000, filter="", output_fields=["id"])
    return {row["id"] for part in iter(rows.next, []) for row in part}
def add(db, ids, texts, vectors):
    rows = [{"id": id, "text": text, "vector": x.tolist()} for id, text, x in zip(ids, texts, vectors)]
    db.insert("texts", rows)
    db.flush("texts")
def query(db, vector, count=10):
    how = {"params": {"nprobe": 128}}  # of 128 lists
    found = db.search("texts", [vector.tolist()], limit=count, output_fields=["text"], search_params=how)
    return [(row["id"], row["entity"]["text"]) for row in found[0]]
"""
_SQLITE = """
import apsw
import numpy as np
import sqlite_vec
def connect(place):
    db = apsw.Connection(place)  # Python's own sqlite3 will do where it was built to load extensions
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    columns = "id text PRIMARY KEY, vector bit[$columns], +text text"
    db.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS texts USING vec0({columns})")
    return db
def stored(vector):
    return np.packbits(vector > 0, bitorder="little").tobytes()
def known(db):
    return {id for (id,) in db.execute("SELECT id FROM texts")}
def add(db, ids, texts, vectors):
    rows = zip(ids, texts, map(stored, vectors))
    with db:
        db.executemany("INSERT INTO texts (id, text, vector) VALUES (?, ?, vec_bit(?))", rows)
def query(db, vector, count=10):
    return list(db.execute("SELECT id, text FROM texts WHERE vector MATCH vec_bit(?) AND k=?", (stored(vector), count)))
"""
_SIGNS, _BESIDE = "one bit per column, compared by Hamming distance", "beside float32 on disk"
_GROUPS = f"each byte for a group of columns, trained, {_BESIDE}"

DATABASES = {
    "pgvector": Database("psycopg[binary]", "postgresql:///texts", _SIGNS, 1, 0, _PGVECTOR),
    "qdrant": Database("qdrant-edge-py", "texts.qdrant", "TurboQuant of four bits, and a length", 4, 4, _QDRANT),
    "lancedb": Database("lancedb", "texts.lance", _GROUPS, 0, 0, _LANCEDB),
    "milvus": Database("pymilvus milvus-lite", "texts.milvus.db", f"a byte per column, {_BESIDE}", 8, 0, _MILVUS),
    "sqlite-vec": Database("sqlite-vec apsw", "texts.db", _SIGNS, 1, 0, _SQLITE),
}
_HEAD = '''"""Texts in {database}, {bytes} bytes of a vector: {quantiser}.

pip install {packages}. The folder `model` gives the vectors, of documents and of queries:

    encoder = SentenceTransformer("model")  # or jaxwhiten.Encoder.from_pretrained("model")
    db = connect("{place}")
    add(db, ids, texts, encoder.encode(texts))
    query(db, encoder.encode("a question"))
"""

'''


def code_of(database: str, columns: int, size: int) -> str:
    """The code that opens a database, adds to it and queries it, for vectors of `columns` columns in `size` bytes."""
    filled = Template(DATABASES[database].code).substitute(columns=columns, bytes=size)
    return re.sub(r"\n(?=def )", "\n\n\n", filled.lstrip())


def turn(inputs: int, outputs: int) -> Float64[np.ndarray, "inputs outputs"]:
    """A fixed random rotation; several are concatenated if there are more outputs than inputs."""
    rng = np.random.default_rng(0)
    turns = [np.linalg.qr(rng.standard_normal((inputs, inputs)))[0] for _ in range(-(-outputs // inputs))]
    return np.hstack(turns)[:, :outputs]


def front(whitening: Whitening, database: str, size: int, gamma: float) -> Whiten:
    """The map in front of a database: mean and axes of a whitening, with as many columns as fit `size` bytes."""
    found, varying = DATABASES[database], min(whitening.n_features_in_, whitening.rank_)
    if (columns := found.columns(size, varying)) < 1:
        raise InputError(f"No vector of {varying} columns fits {size} bytes of {database}: {found.quantiser}.")
    whitening = whitening.with_params(n_components=min(columns, varying), beta=1.0, gamma=gamma)
    if found.bits != 1:
        return Whiten.of(whitening)
    rotation = turn(min(columns, varying), columns)
    weight, bias = (np.asarray(part @ rotation, np.float32) for part in whitening.kernel)
    return Whiten(weight, bias, None)


def save_database(
    folder: str | Path, encoder: Encoder, database: str, size: int = 48, *, gamma: float | None = None
) -> dict[str, Any]:
    """Writes a model folder for a database, and the code that opens the database, adds to it and queries it.

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole. It gets `model/`, which
        sentence-transformers and `Encoder.from_pretrained` load, `recipe.py` and `recipe.json`.
      encoder: An encoder with a whitening in its head, whose mean and axes are used with β = 1.
      database: A name of `DATABASES`.
      size: Bytes of a vector in the database.
      gamma: Power of the scaling; by default `SpectrumCode.usual_gamma`.

    Returns:
      The contents of `recipe.json`.

    Raises:
      InputError: The encoder has no whitening, or no column fits into `size` bytes.
    """
    check_name("database", database, DATABASES)
    found, whitening, raw = DATABASES[database], encoder.head.whitening, encoder.before_whitening()
    if whitening is None:
        raise InputError(f"{encoder.name}: no whitening in it; `jaxwhiten fit TEXTS --model MODEL -o DIR/` adds one.")
    gamma = SpectrumCode.usual_gamma(whitening, is_tuned(raw)) if gamma is None else gamma
    small = raw.then(front(whitening, database, size, gamma), Normalize())
    settings = {"database": database, "quantiser": found.quantiser, "bytes": size, "columns": small.dimension}
    settings |= {"beta": 1.0, "gamma": float(gamma), "unit_length": True, "rotated_at_random": found.bits == 1}
    said = _HEAD.format(**settings, packages=found.packages, place=found.place)
    with io.whole_folder(folder, kind="database") as whole:
        small.save(whole / MODEL)
        io.write_text(whole / CODE, said + code_of(database, small.dimension, size))
        io.write_json(whole / SETTINGS, settings)
    return settings


def fill(
    folder: str | Path, place: str, ids: Sequence[Any], texts: Sequence[str], encode: Callable[[list[str]], np.ndarray]
) -> int:
    """Adds the texts whose ids a database does not have yet, by the code in a folder of `save_database`.

    Ids are stored as strings. `encode` maps texts to vectors by the folder's model. Returns the number of added texts.
    """
    try:
        code = runpy.run_path(str(Path(folder) / CODE))
    except ImportError as error:
        raise MissingDependencyError(f"{error.name} is not installed: {install_command('databases')}.") from error
    there = code["known"](db := code["connect"](place))
    rows = [(id, text) for id, text in zip(map(str, ids), texts, strict=True) if id not in there]
    for start in range(0, len(rows), _BLOCK):
        new, part = map(list, zip(*rows[start : start + _BLOCK], strict=True))
        code["add"](db, new, part, encode(part))
    if hasattr(db, "close"):
        db.close()
    return len(rows)
