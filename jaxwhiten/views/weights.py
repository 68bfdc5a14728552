"""Where vectors come from, so that their space outlives the model.

To hash the weights, or to judge by its vectors whether an encoder is fine-tuned, takes longer than a query. Both are
done when they are first asked for, by the encoder's engine, or by its folder where the engine is no longer there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxwhiten import io
from jaxwhiten.engines import Engine, engine_class, engine_for
from jaxwhiten.engines.engine import digest
from jaxwhiten.errors import JaxwhitenError, NonFiniteError
from jaxwhiten.head import AUTO, Head
from jaxwhiten.models import EncoderConfig
from jaxwhiten.models.folders import hashed
from jaxwhiten.space import Origin, VectorSpace
from jaxwhiten.text import BulkTokenizer, as_texts, uncounted
from jaxwhiten.views.stream import Run, output_of, progress
from jaxwhiten.whitening import Moments, is_spread, participation_ratio

_numbers = itertools.count()


class Weights:
    """What the vectors of some encoders depend on except their heads: an engine and a tokenizer.

    `read` reads the engine again, or gives None if its folder is no longer the same. Without it, these weights hold
    their engine.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: BulkTokenizer,
        config: EncoderConfig,
        read: Callable[[], Engine | None] | None = None,
    ):
        self._engine: Engine | None = engine
        self.tokenizer = tokenizer
        self.config = config
        self.read = read
        self.number = next(_numbers)
        self._fingerprints: dict[str, str] = {}
        self._ratios: dict[str, float] = {}

    def are_of(self, engine: Engine, tokenizer: BulkTokenizer) -> bool:
        """Whether these are the weights of an engine and a tokenizer."""
        return self._engine is engine and self.tokenizer is tokenizer

    def release(self) -> None:
        """Holds the engine no longer, if it can be read again."""
        if self.read is not None:
            self._engine = None

    def _engine_again(self) -> Engine | None:
        engine = self._engine
        if engine is not None or self.read is None:
            return engine
        return self.read()

    def known_fingerprint(self, head: Head | None) -> str:
        """The fingerprint if it was asked for before, else a name for it in this process."""
        key = _key(head)
        return self._fingerprints.get(key) or f"{self.number} {key}"

    def fingerprint(self, head: Head | None) -> str | None:
        """The hash of weights, tokenizer and head; None if the weights are gone."""
        key = _key(head)
        if key not in self._fingerprints:
            if (engine := self._engine_again()) is None:
                return None
            contents = () if head is None else tuple(head.contents())
            self._fingerprints[key] = digest(engine, self.tokenizer, contents)[:24]
        return self._fingerprints[key]

    def ratio(self, head: Head) -> float | None:
        """The participation ratio of vectors of the shipped sentences; None if the weights are gone."""
        key = _key(head)
        if key not in self._ratios:
            if (engine := self._engine_again()) is None:
                return None
            key_parts = [self.tokenizer.to_str(), key, engine.dtype, str(self.tokenizer.max_length)]
            name = f"ratio-{hashed(part.encode() for part in key_parts)}"
            cache = engine.cache
            ratio = (
                cache.text(name, lambda: str(self._measured(head, engine))) if cache else self._measured(head, engine)
            )
            self._ratios[key] = float(ratio)
        return self._ratios[key]

    def _measured(self, head: Head, engine: Engine) -> float:
        from jaxwhiten.datasets import load_sts

        output = output_of(head, engine, self.tokenizer, head.width(self.config))
        run = Run(self.tokenizer, engine, {"": output})
        pairs = load_sts("sts_sample").splits["test"]
        with uncounted(), contextlib.suppress(NonFiniteError):
            vectors = run.of_list(as_texts([*pairs.sentence1, *pairs.sentence2]), progress(show=False))[""]
            return round(participation_ratio(Moments().update(vectors)), 1)
        return 0.0


def _key(head: Head | None) -> str:
    if head is None:
        return ""
    return hashed(head.contents())


def unnamed(head: Head) -> Head | None:
    """A head whose name does not say what it is; None for others, which the fingerprint leaves out."""
    if head.name.startswith(AUTO):
        return head
    return None


class Lease:
    """Held by all encoders that share weights: once they are gone, their vectors no longer hold the engine."""

    def __init__(self, weights: Weights):
        self.weights = weights

    def __del__(self) -> None:
        self.weights.release()


@dataclasses.dataclass(frozen=True, eq=False)
class ViewOrigin(Origin):
    """The origin of vectors by a head without a code, and `about` it all but the fingerprint."""

    weights: Weights
    head: Head
    about: VectorSpace

    @functools.cached_property
    def _known(self) -> VectorSpace | None:
        """The space with its fingerprint, if the weights are there."""
        fingerprint = self.weights.fingerprint(unnamed(self.head))
        if fingerprint is None:
            return None
        return dataclasses.replace(self.about, fingerprint=fingerprint)

    def brief(self) -> VectorSpace:
        return dataclasses.replace(self.about, fingerprint=self.weights.known_fingerprint(unnamed(self.head)))

    def space(self, judged: bool = False) -> VectorSpace:
        known = self._known or self.about
        if not judged or known.tuned is not None:
            return known
        head = self.head.before_whitening()
        ratio = self.weights.ratio(head)
        if ratio is None:
            return known
        tuned = is_spread(ratio, head.width(self.weights.config))
        return dataclasses.replace(known, tuned=tuned, participation_ratio=ratio)


def reader(
    engine: str, folder: Path, weights_folder: Path, max_length: int, device: Any, dtype: str
) -> Callable[[], Engine | None]:
    """A function that reads an engine's folder again; it gives None if the folder is gone or was changed."""
    before = _files(weights_folder)

    def read() -> Engine | None:
        with contextlib.suppress(OSError, JaxwhitenError):
            model = engine_class(engine).load(folder, dtype)[0]
            again = engine_for(engine, model, max_length, device, dtype)
            return again if _files(weights_folder) == before else None
        return None

    return read


def _files(folder: Path) -> io.Files:
    """The weights and configuration of a folder, which are no longer equal once one of them is replaced."""
    return io.Files.of(path for path in folder.iterdir() if path.name.endswith((".json", ".safetensors")))
