"""Which space a vector is in, and the one comparison of two spaces.

Vectors can be compared if one encoder and one head made them, with the same maximum length and prompts that belong
together. Indexes, parts, moments, whitenings, codes, databases and training records carry the record of their space.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxwhiten.errors import MismatchError, warn
from jaxwhiten.marked import MarkedArray, marked
from jaxwhiten.types import Fields, Json, RowsLike

# Fingerprints are shown by a name if the names differ, or described.
_SHOWN = {"fingerprint": "model", "head": "pooling"}
_UNSEEN = {"fingerprint": "other weights, tokenizer or head", "head": "another head, such as another whitening"}
_TYPES: dict[str, Any] = {"prompts": dict, "max_length": int, "dimension": int}  # other fields are texts
_TYPES |= {"tuned": bool, "participation_ratio": float}
_OF_VECTORS = ("fingerprint", "head", "pooling", "max_length", "prompt", "prompts", "code")  # on which they depend
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
        fields: Json = {name: (record or {}).get(name) for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in fields.items() if isinstance(value, _TYPES.get(name, str))})

    @property
    def is_pooled(self) -> bool:
        """Whether vectors are known to be pooled and nothing else, such as whitened."""
        return self.pooling is not None and not self.pooling.startswith("auto")

    def record(self) -> Json:
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
        needed: tuple[str, ...] = ()
        if strict:
            needed = ("fingerprint", "pooling", "max_length")
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
    expected = VectorSpace.of(expected)
    got = VectorSpace.of(got)
    if not (names := expected.differences(got, role=role, strict=strict)):
        return
    mismatches = dict[str, None]()
    use = dict[str, None]()
    for name in names:
        label = _SHOWN.get(name, name)
        was = getattr(expected, label)
        now = getattr(got, label)
        mismatches[f"expected {label}={was!r}, got {now!r}" if was != now else f"expected {_UNSEEN[name]}"] = None
        if name != "dimension" or len(names) == 1:  # it follows from the others
            use[f"{label}={was!r}" if was != now else f"the files of {expected.model!r} that were used there"] = None
    message = f"The vectors are not in the space of {where}: {'; '.join(mismatches)}."
    if set(names) <= set(tolerated):
        return warn(message, SpaceWarning)
    raise MismatchError(f"{message} Encode with {' and '.join(use)}, or {otherwise}.")


def merged(where: object, facts: Fields, more: Fields) -> Json:
    """The facts of vectors of two origins. If one origin is unknown, a warning names it, and no space is kept.

    Raises MismatchError if the spaces differ; `where` names the second origin.
    """
    check_space(where, more, facts, "omit it")
    result = {**more, **facts}
    if ("fingerprint" in facts) != ("fingerprint" in more):
        unknown = where if "fingerprint" in facts else f"what {where} is merged into"
        warn(f"no encoder is recorded for {unknown}, so the result records none.", SpaceWarning)
        for name in VectorSpace.__dataclass_fields__:
            result.pop(name, None)
    return result


class Origin(ABC):
    """Where vectors come from: all that their space needs, which is computed when it is first asked for.

    Its spaces have no dimension, because vectors can be truncated. It pickles as the space itself.
    """

    @abstractmethod
    def space(self, judged: bool = False) -> VectorSpace:
        """The space. If `judged`, with the answer whether the encoder is fine-tuned for similarity."""

    @abstractmethod
    def brief(self) -> VectorSpace:
        """The space at no cost: if its fingerprint is not known yet, a name that only vectors of equal ones share."""

    def __reduce__(self) -> Any:
        return Known.of, (self.space(judged=True).record(),)

    def __copy__(self) -> Origin:
        return self

    def __deepcopy__(self, memo: object) -> Origin:
        return self

    def is_like(self, other: Origin) -> bool:
        """Whether vectors of both origins can be kept as vectors of one."""
        return _alike(self.brief(), other.brief()) or _alike(self.space(), other.space())


def _alike(a: VectorSpace, b: VectorSpace) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in _OF_VECTORS)


@dataclasses.dataclass(frozen=True, eq=False)
class Known(Origin):
    """The origin of vectors whose space is known."""

    known: VectorSpace

    @classmethod
    def of(cls, record: Record) -> Known | None:
        """The origin that a record describes; None if it says nothing of a space."""
        space = dataclasses.replace(VectorSpace.of(record), dimension=None)
        if any(getattr(space, name) is not None for name in (*_OF_VECTORS, "model")):
            return cls(space)
        return None

    def space(self, judged: bool = False) -> VectorSpace:
        return self.known

    def brief(self) -> VectorSpace:
        return self.known


class EncodedArray(MarkedArray):
    """Vectors [n, d], or one vector [d], that `Encoder.encode` returned and whose space is known.

    Rows, copies, pickles, other floats and concatenations of rows of one space know it. What else is made of them does
    not, and nor do they after something was written into them, unless through a plain view (`np.asarray`).
    """

    @property
    def origin(self) -> Origin | None:
        """Where the vectors come from, if that is known."""
        origin: Origin | None = self.mark
        return origin

    @property
    def space(self) -> VectorSpace | None:
        """The space of these vectors."""
        return self.known_space()

    def known_space(self, judged: bool = False) -> VectorSpace | None:
        """`space`; if `judged`, with the encoder's answer whether it is fine-tuned for similarity."""
        origin = self.origin
        if origin is None:
            return None
        return dataclasses.replace(origin.space(judged), dimension=self.shape[-1])

    def _holds(self, dtype: np.dtype) -> bool:
        return dtype.kind == "f" or dtype.name == "bfloat16"

    @staticmethod
    def _equal(mark: Origin, other: Origin) -> bool:
        return mark.is_like(other)

    def __reduce__(self) -> Any:
        plain, origin = np.array(self), self.origin
        return plain.__reduce__() if origin is None else (with_space, (plain, origin))


def with_space(vectors: np.ndarray, origin: Origin | None) -> np.ndarray:
    """A view of vectors that knows where they come from; the vectors themselves if that is None."""
    if origin is None:
        return vectors
    return marked(vectors, EncodedArray, origin)


def origin_of(vectors: RowsLike) -> Origin | None:
    """Where vectors come from: an array that `Encoder.encode` returned, or a list of its rows; None if not known.

    Raises:
      MismatchError: The rows of a list are in different spaces.
    """
    if not isinstance(vectors, list | tuple):
        origin: Origin | None = getattr(vectors, "origin", None) if isinstance(vectors, MarkedArray) else None
        return origin
    if not any(isinstance(row, MarkedArray) for row in vectors):
        return None
    origins = list({id(origin): origin for origin in map(origin_of, vectors)}.values())
    present = [origin for origin in origins if origin is not None]
    for other in present[1:]:
        check_origin("the first vectors", present[0], other, "compare vectors of one encoder")
    if len(present) == len(origins):
        return present[0]
    return None


def check_origin(
    where: object,
    expected: Origin | None,
    got: Origin | None,
    otherwise: str,
    *,
    role: str = "query",
    tolerated: tuple[str, ...] = (),
) -> None:
    """`check_space` of the spaces of two origins; where one is not known, nothing is compared."""
    if expected is None or got is None or expected is got:
        return
    if expected.brief().differences(got.brief(), role=role):
        check_space(where, expected.space(), got.space(), otherwise, role=role, tolerated=tolerated)
