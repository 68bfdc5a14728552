"""The two functions that all engines share: a batch of texts to vectors, and a batch of vectors to moments.

A batch is an Arrow table. Moments are kept by group, under None where nobody asked for groups; they merge in any order,
and travel between processes as safetensors bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.coded import as_floats
from jaxwhiten.errors import InputError
from jaxwhiten.whitening import Moments

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder

MAX_TEXT = 1 << 20  # characters; a longer text is a file in the wrong place
Groups = dict[Any, Moments]


def loaded(how: Mapping[str, Any], encoding: dict[str, Any] | None = None) -> Encoder:
    """The encoder of a worker; InputError where it is not the one that the driver has."""
    from jaxwhiten.encoding import Encoder

    encoder = Encoder.from_pretrained(**how)
    if encoding is not None and encoder.encoding() != encoding:
        raise InputError(
            f"{how['model']}: the encoder that a worker reads there is another than the driver's: save the driver's"
            " with encoder.save(folder), where every worker can read it, and give that folder."
        )
    return encoder


def problem(value: Any) -> str | None:
    """Why a value cannot be embedded; None for a text."""
    if not isinstance(value, str):
        return f"not UTF-8: {value[:40]!r}" if isinstance(value, bytes) else f"{value!r:.80} is not text"
    return f"longer than {MAX_TEXT} characters" if len(value) > MAX_TEXT else None


def values(column: Any) -> list[Any]:
    """The values of an Arrow column of texts; what is not UTF-8 stays bytes."""
    import pyarrow as pa

    try:
        return column.cast(pa.string()).to_pylist() if pa.types.is_binary(column.type) else column.to_pylist()
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return [_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return value if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def embedded(encoder: Encoder, texts: Sequence[Any], beside: Mapping[str, Any], dtype: Any = None, **told: Any) -> Any:
    """An Arrow table of the columns `beside`, the texts' `vector` or `code`, and `error`, which says why one has none.

    `vector` holds fixed-size lists of `dtype`, `code` fixed-size bytes. The schema's metadata say what they are, and
    what is `told` of them.
    """
    import pyarrow as pa

    errors, prompt = [problem(text) for text in texts], encoder.prompt_for("document")
    good: Any = [text for text, error in zip(texts, errors, strict=True) if error is None]
    vectors: np.ndarray = np.asarray(encoder.encode(good, prompt=prompt, show_progress=False))
    if encoder.head.code is not None:
        name, kind = "code", pa.binary(vectors.shape[1])
        found = pa.FixedSizeBinaryArray.from_buffers(kind, len(good), [None, pa.py_buffer(vectors.tobytes())])
    else:
        name, vectors = "vector", np.ascontiguousarray(vectors, dtype)
        found = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), encoder.dimension)
    if len(good) < len(texts):
        bad = np.array([error is not None for error in errors])
        found = found.take(pa.array(np.cumsum(~bad) - 1, mask=bad))
    facts = {"format_version": io.FORMAT_VERSION, "dimension": encoder.dimension, "dtype": vectors.dtype.name}
    facts |= {"encoding": encoder.encoding(prompt=prompt), **told}
    table = pa.table({**beside, name: found, "error": pa.array(errors, pa.string())})
    return table.replace_schema_metadata({"jaxwhiten": json.dumps(facts)})


def embedded_batch(encoder: Encoder, batch: Any, column: str, id_column: str | None, keep: Sequence[str]) -> Any:
    """Embeds a column of an Arrow table with `embedded`; the result has `id` and the columns to keep."""
    beside = {"id": batch[id_column]} if id_column else {}
    return embedded(encoder, values(batch[column]), {**beside, **{name: batch[name] for name in keep}})


def vectors_of(column: Any) -> np.ndarray:
    """The vectors [n, d] of an Arrow column of lists, or the uint8 codes of a column of bytes, without the nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    column = column.drop_null()
    if pa.types.is_fixed_size_binary(column.type):
        return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(len(column), -1 if len(column) else 0)
    widths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(widths) > 1:
        raise InputError(f"The vectors are of different widths, {sorted(widths)[:2]}: embed them with one encoder.")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), *widths or [0])


def sums(vectors: np.ndarray) -> Moments:
    """The moments of a block, in float64, so that parts merge to the moments of the corpus to the last digits."""
    return Moments().update(as_floats(vectors).astype(np.float64)) if len(vectors) else Moments()


def moments_of(batch: Any, column: str = "vector", by: str | None = None) -> Groups:
    """The moments of the vectors of an Arrow table, by the values of a column."""
    import pyarrow.compute as pc

    if by is None:
        return {None: sums(vectors_of(batch[column]))}
    keys = batch[by].dictionary_encode(null_encoding="encode")
    keys = keys.combine_chunks() if hasattr(keys, "chunks") else keys
    parts = (batch[column].filter(pc.equal(keys.indices, number)) for number in range(len(keys.dictionary)))
    return {key: sums(vectors_of(part)) for key, part in zip(keys.dictionary.to_pylist(), parts, strict=True)}


def merged(total: Groups, *parts: Groups) -> Groups:
    """The moments of all parts, added to `total`; the parts do not change, and groups without rows left out."""
    for part in parts:
        for key, moments in part.items():
            if moments.n:
                total.setdefault(key, Moments()).merge(moments)
    return total


def as_bytes(groups: Groups) -> bytes:
    """Moments by group as safetensors; groups are texts, numbers or null."""
    from safetensors.numpy import save

    arrays = {"groups": np.frombuffer(json.dumps(list(groups)).encode(), np.uint8)}
    for number, moments in enumerate(groups.values()):
        arrays |= {f"n {number}": np.array([moments.n]), f"mean {number}": moments.mean, f"M2 {number}": moments.M2}
    return save(arrays)


def from_bytes(data: bytes) -> Groups:
    """The inverse of `as_bytes`."""
    from safetensors.numpy import load

    arrays = load(data)
    groups = json.loads(arrays["groups"].tobytes())
    parts = [Moments(int(arrays[f"n {i}"][0]), arrays[f"mean {i}"], arrays[f"M2 {i}"]) for i in range(len(groups))]
    return merged({}, dict(zip(groups, parts, strict=True)))


def merged_bytes(*parts: bytes) -> bytes:
    """`merged` on bytes; without arguments, empty moments."""
    return as_bytes(merged({}, *map(from_bytes, parts)))


def result(groups: Groups, by: str | None) -> Moments | Groups:
    """The moments, or with `by` a dictionary of the moments of each group."""
    return groups if by is not None else groups.get(None, Moments())
