"""Which space a vector is in, and the one comparison of two spaces.

Vectors can be compared if one encoder and one head made them, with the same maximum length and prompts that belong
together. Indexes, parts, moments, whitenings, codes, databases and training records carry the record of their space.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxwhiten.errors import MismatchError, spelled

# Hashes are shown by a name that people know, if the names differ, and otherwise in words.
_SHOWN = {"encoder": "model", "fingerprint": "model", "head": "pooling"}
_UNSEEN = {
    "encoder": "other weights, another configuration or another tokenizer",
    "head": "a head with other steps, such as another whitening",
    "fingerprint": "other weights or another head",
}


class SpaceWarning(UserWarning):
    """The space of some vectors is unknown or slightly different."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSpace:
    """The space of some vectors. A field is None where it is unknown, as in files of earlier versions."""

    model: str | None = None  # how to make more vectors; not compared
    folder: str | None = None  # the absolute path of a local model; not compared
    dtype: str | None = None  # of matrix products; not compared
    engine: str | None = None  # not compared
    fingerprint: str | None = None  # of encoder and head together, all that files of earlier versions have
    pooling: str | None = None  # the head's name
    encoder: str | None = None  # fingerprint of weights, configuration and tokenizer
    head: str | None = None  # fingerprint of the pooling and the steps after it, without a final code
    prompt: str | None = None  # in front of these texts
    prompts: dict[str, str] | None = None  # in front of queries and of documents
    max_length: int | None = None
    dimension: int | None = None  # without a final code
    code: str | None = None  # name, bytes and fingerprint of a final code

    @classmethod
    def of(cls, record: Mapping[str, Any] | None) -> VectorSpace:
        """The space that a record describes, such as the encoding of an index or the provenance of a whitening."""
        return cls(**{field.name: (record or {}).get(field.name) for field in dataclasses.fields(cls)})

    def record(self) -> dict[str, Any]:
        """The known fields, JSON-representable."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def differences(self, other: VectorSpace, *, role: str = "document", strict: bool = False) -> list[str]:
        """The fields in which two spaces differ, as far as both are known.

        `self` is of documents. If `other` is of a `"query"`, both need the same set of prompts, and the code of the
        documents does not matter. With `strict`, a fingerprint, pooling or length that only `self` knows differs.
        """
        apart = None not in (self.encoder, self.head, other.encoder, other.head)
        names = ["encoder", "head"] if apart else ["fingerprint", "pooling"]
        names += ["max_length", "dimension", *(["prompts"] if role == "query" else ["prompt", "code"])]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        needed = ("fingerprint", "pooling", "max_length") if strict else ()
        return [name for name, (was, now) in pairs.items() if was != now and (None not in (was, now) or name in needed)]


def check_space(
    where: object,
    expected: VectorSpace,
    got: VectorSpace,
    otherwise: str,
    *,
    role: str = "document",
    strict: bool = False,
    tolerated: tuple[str, ...] = (),
) -> None:
    """Raises MismatchError if two spaces differ; the message names every field that does, and a remedy.

    Args:
      where: What `expected` belongs to, for the message: a file, or "The index".
      expected, got: The space that is recorded, and the space of other vectors.
      otherwise: The remedy if the vectors cannot be encoded as expected, such as "build the index again".
      role, strict: As for `VectorSpace.differences`.
      tolerated: Fields that are only warned of if no other field differs.
    """
    if not (names := expected.differences(got, role=role, strict=strict)):
        return
    said, use = [], []
    for name in names:
        shown = _SHOWN.get(name, name)
        was, now = getattr(expected, shown), getattr(got, shown)
        if was != now:
            said.append(f"expected {spelled(shown, was)}, got {now!r}")
            use.append(spelled(shown, was))
        else:
            said.append(f"expected {_UNSEEN[name]}")
            use.append(f"the files of {was!r} that it was made with" if was else "the model that it was made with")
    message = f"{where} is of another vector space: {'; '.join(dict.fromkeys(said))}."
    if set(names) <= set(tolerated):
        return warnings.warn(message, SpaceWarning, stacklevel=3)
    raise MismatchError(f"{message} Encode with {' and '.join(dict.fromkeys(use))}, or {otherwise}.")


def merged(where: object, facts: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of vectors of two origins: those of the first, without a space if that of one origin is unknown.

    Raises MismatchError if the spaces differ; `where` names the second origin.
    """
    first, second = VectorSpace.of(facts), VectorSpace.of(more)
    check_space(where, second, first, "leave it out")
    lost = {field.name for field in dataclasses.fields(VectorSpace)} - {"dimension"}
    if (first.fingerprint is None) == (second.fingerprint is None):
        return {**more, **facts}
    unknown = where if second.fingerprint is None else f"What {where} is merged into"
    warnings.warn(
        f"{unknown} does not record its encoder, so the result records none: make sure that both are of one encoder.",
        SpaceWarning,
        stacklevel=3,
    )
    return {name: value for name, value in {**more, **facts}.items() if name not in lost}


class EncodedArray(np.ndarray):
    """Vectors [n, d], or one vector [d], that `Encoder.encode` returned and whose space is known.

    Rows, copies and other dtypes keep the space. Arithmetic, `np.asarray` and pickles give plain arrays.
    """

    origin: Callable[[], VectorSpace | None] | None

    def __array_finalize__(self, source: Any) -> None:
        self.origin = getattr(source, "origin", None) if self.shape[-1:] == np.shape(source)[-1:] else None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    @property
    def space(self) -> VectorSpace | None:
        """The space of these vectors; None after their encoder was deleted."""
        found = self.origin() if self.origin is not None else None
        return found and dataclasses.replace(found, dimension=self.shape[-1])


def with_space(vectors: np.ndarray, origin: Callable[[], VectorSpace | None]) -> np.ndarray:
    """A view of vectors that knows its space; `origin` is called when the space is first compared."""
    found = vectors.view(EncodedArray)
    found.origin = origin
    return found
