"""Which space a vector is in, and the one comparison of two spaces.

Vectors can be compared if one encoder and one head made them, with the same maximum length and prompts that belong
together. Indexes, parts, moments, whitenings, codes, databases and training records carry the record of their space.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxwhiten.errors import MismatchError, warn
from jaxwhiten.types import Fields, Json

# Fingerprints are shown by a name if the names differ, or described.
_SHOWN = {"fingerprint": "model", "head": "pooling"}
_UNSEEN = {"fingerprint": "other weights, tokenizer or head", "head": "another head, such as another whitening"}
_TYPES: dict[str, Any] = {"prompts": dict, "max_length": int, "dimension": int}  # other fields are texts


class SpaceWarning(UserWarning):
    """The space of some vectors is unknown or slightly different."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Space:
    """The space of some vectors. A field is None where it is unknown.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> encoder.encode(["It rains."]).space == encoder.view.space
    True

    Attributes:
      model, dtype, engine: How to make more vectors; not compared.
      fingerprint: Hash of the encoder, with its head if that has no name.
      head: Hash of the pooling and the steps after it, without a final code.
      pooling: The head's name, compared where the head is unknown.
      max_length: Tokens of a text before it is truncated.
      dimension: Columns of the vectors, without a final code.
      prompt: The text in front of these texts.
      prompts: The texts in front of queries and of documents.
      code: Name, bytes and fingerprint of a final code.
    """

    model: str | None = None
    dtype: str | None = None
    engine: str | None = None
    fingerprint: str | None = None
    head: str | None = None
    pooling: str | None = None
    max_length: int | None = None
    dimension: int | None = None
    prompt: str | None = None
    prompts: dict[str, str] | None = None
    code: str | None = None

    @classmethod
    def of(cls, record: Fields | None) -> Space:
        """The space that a record describes, such as the provenance of a whitening; other entries are ignored."""
        fields = {name: (record or {}).get(name) for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in fields.items() if isinstance(value, _TYPES.get(name, str))})

    @property
    def is_pooled(self) -> bool:
        """Whether vectors are known to be pooled and nothing else, such as whitened."""
        return self.pooling is not None and not self.pooling.startswith("auto")

    def record(self) -> Json:
        """The known fields, JSON-representable."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def differences(self, other: Space, *, role: str = "document", strict: bool = False) -> list[str]:
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


def check_space(
    where: object,
    expected: Space | None,
    got: Space | None,
    otherwise: str,
    *,
    role: str = "document",
    strict: bool = False,
    tolerated: tuple[str, ...] = (),
) -> None:
    """Raises MismatchError if two spaces differ: the message names the fields that do, and says what to do.

    Args:
      where: The owner of `expected` in the message: a file, or "the index".
      expected, got: The spaces; where one is None, nothing is compared.
      otherwise: The remedy if the vectors cannot be encoded as expected, such as "rebuild the index".
      role, strict: As in `Space.differences`.
      tolerated: Fields that only cause a warning if no other field differs.
    """
    if expected is None or got is None or expected is got:
        return
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
    """The provenance of vectors of two sources. If one records no encoder, a warning names it, and no space is kept.

    Raises MismatchError if the spaces differ; `where` names the second source.
    """
    check_space(where, Space.of(more), Space.of(facts), "omit it")
    result = {**more, **facts}
    if ("fingerprint" in facts) != ("fingerprint" in more):
        unknown = where if "fingerprint" in facts else f"what {where} is merged into"
        warn(f"no encoder is recorded for {unknown}, so the result records none.", SpaceWarning)
        for name in (*Space.__dataclass_fields__, "tuned", "participation_ratio"):
            result.pop(name, None)
    return result
