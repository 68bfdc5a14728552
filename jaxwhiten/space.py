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

from jaxwhiten.errors import MismatchError

# Fingerprints are shown by a name if the names differ, or described.
_SHOWN = {"fingerprint": "model", "head": "pooling"}
_UNSEEN = {"fingerprint": "other weights, tokenizer or head", "head": "another head, such as another whitening"}
_TYPES: dict[str, Any] = {"prompts": dict, "max_length": int, "dimension": int}  # other fields are texts
_TYPES |= {"tuned": bool, "participation_ratio": float}
JUDGED = ("tuned", "participation_ratio")  # fields that vectors do not depend on


class SpaceWarning(UserWarning):
    """The space of some vectors is unknown or slightly different."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSpace:
    """The space of some vectors. A field is None where it is unknown."""

    model: str | None = None  # these four say how to make more vectors, and are not compared
    folder: str | None = None
    dtype: str | None = None
    engine: str | None = None
    tuned: bool | None = None  # whether the encoder is fine-tuned for similarity, and its ratio if that decided
    participation_ratio: float | None = None  # of the shipped sentences; neither is compared
    fingerprint: str | None = None  # of the encoder, with its head if that has no name
    head: str | None = None  # fingerprint of the pooling and the steps after it, without a final code
    pooling: str | None = None  # the head's name, compared where the head is unknown
    max_length: int | None = None
    dimension: int | None = None  # without a final code
    prompt: str | None = None  # in front of these texts
    prompts: dict[str, str] | None = None  # in front of queries and of documents
    code: str | None = None  # name, bytes and fingerprint of a final code

    @classmethod
    def of(cls, record: Record) -> VectorSpace:
        """The space that a record describes, such as the encoding of an index or the provenance of a whitening."""
        if isinstance(record, VectorSpace):
            return record
        known: dict[str, Any] = {name: (record or {}).get(name) for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in known.items() if isinstance(value, _TYPES.get(name, str))})

    def record(self) -> dict[str, Any]:
        """The known fields, JSON-representable."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def differences(self, other: VectorSpace, *, role: str = "document", strict: bool = False) -> list[str]:
        """The fields in which two spaces differ, as far as both are known.

        `self` is of documents. If `other` is of a `"query"`, both need the same set of prompts, and the code of the
        documents does not matter. With `strict`, a fingerprint, pooling or length that only `self` knows differs.
        """
        names = ["fingerprint", "pooling"]
        if None not in (self.head, other.head):  # other heads may be all that is different in a fingerprint
            names = ["head"] if self.head != other.head and self.model == other.model else ["fingerprint", "head"]
        names += ["max_length", "dimension", *(["prompts"] if role == "query" else ["prompt", "code"])]
        needed = ("fingerprint", "pooling", "max_length") if strict else ()
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return [name for name, (a, b) in pairs.items() if a != b and (None not in (a, b) or name in needed)]


Record = VectorSpace | Mapping[str, Any] | None


def check_space(
    where: object,
    expected: Record,
    got: Record,
    otherwise: str,
    *,
    role: str = "document",
    strict: bool = False,
    tolerated: tuple[str, ...] = (),
) -> None:
    """Raises MismatchError if two spaces differ: the message names the fields that do, and says what to do.

    `where` is the owner of `expected` in the message: a file, or "the index". `otherwise` is the remedy if the vectors
    cannot be encoded as expected, such as "rebuild the index". `role` and `strict` are as in
    `VectorSpace.differences`. Fields that are `tolerated` only cause a warning if no other field differs.
    """
    expected, got = VectorSpace.of(expected), VectorSpace.of(got)
    if not (names := expected.differences(got, role=role, strict=strict)):
        return
    said, use = dict[str, None](), dict[str, None]()
    for name in names:
        shown = _SHOWN.get(name, name)
        was, now = getattr(expected, shown), getattr(got, shown)
        said[f"expected {shown}={was!r}, got {now!r}" if was != now else f"expected {_UNSEEN[name]}"] = None
        use[f"{shown}={was!r}" if was != now else f"the files of {expected.model!r} that were used there"] = None
    message = f"The vectors are not in the space of {where}: {'; '.join(said)}."
    if set(names) <= set(tolerated):
        return warnings.warn(message, SpaceWarning, stacklevel=3)
    raise MismatchError(f"{message} Encode with {' and '.join(use)}, or {otherwise}.")


def merged(where: object, facts: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of vectors of two origins. If one origin is unknown, a warning names it, and no space is kept.

    Raises MismatchError if the spaces differ; `where` names the second origin.
    """
    check_space(where, more, facts, "omit it")
    result = {**more, **facts}
    if ("fingerprint" in facts) != ("fingerprint" in more):
        unknown = where if "fingerprint" in facts else f"what {where} is merged into"
        warnings.warn(f"no encoder is recorded for {unknown}, so the result records none.", SpaceWarning, stacklevel=3)
        for name in VectorSpace.__dataclass_fields__:
            result.pop(name, None)
    return result


class EncodedArray(np.ndarray):
    """Vectors [n, d], or one vector [d], that `Encoder.encode` returned and whose space is known.

    Rows, copies and other dtypes keep the space. Arithmetic, `np.asarray` and pickles give plain arrays.
    """

    origin: Callable[[bool], VectorSpace | None] | None

    def __array_finalize__(self, source: Any) -> None:
        self.origin = getattr(source, "origin", None) if self.shape[-1:] == np.shape(source)[-1:] else None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    @property
    def space(self) -> VectorSpace | None:
        """The space of these vectors; None after their encoder was deleted."""
        return self.known_space()

    def known_space(self, judged: bool = False) -> VectorSpace | None:
        """`space`; if `judged`, with the encoder's answer whether it is fine-tuned for similarity."""
        space = self.origin(judged) if self.origin is not None else None
        return space and dataclasses.replace(space, dimension=self.shape[-1])


def with_space(vectors: np.ndarray, origin: Callable[[bool], VectorSpace | None]) -> np.ndarray:
    """A view of vectors that knows its space; `origin` is called with `judged` when the space is first compared."""
    known = vectors.view(EncodedArray)
    known.origin = origin
    return known
