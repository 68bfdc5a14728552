"""What all views of a model share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxwhiten import io
from jaxwhiten.engines import Engine
from jaxwhiten.engines.engine import digest
from jaxwhiten.errors import InputError, MismatchError, ModelError
from jaxwhiten.head import AUTO, Head, longest_text
from jaxwhiten.models import EncoderConfig
from jaxwhiten.terminal import counted
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.types import Fields

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Core:
    """A model in an engine with its tokenizer, and what is known of both.

    `tuned` is whether the model is fine-tuned for similarity, as the caller or the folder specifies. A named pooling
    replaces the whole head if `bare`, else its pooling. A core with a source, which reads the model again elsewhere,
    can be pickled and deep-copied, as the place of its files.
    """

    engine: Engine
    tokenizer: BulkTokenizer
    config: EncoderConfig
    name: str
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tuned: bool | None = None
    bare: bool = False
    source: Callable[[], tuple[Any, Any]] | None = None  # `load_view` of the place

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is None:
            raise InputError("An encoder cannot be pickled or deep-copied: save it, and load its folder there.")
        fields = {name: getattr(self, name) for name in ("name", "prompts", "tuned", "bare")}
        return _read_again, (self.source, fields, self.digest)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of weights, configuration and tokenizer."""
        return digest(self.engine, self.tokenizer)

    def fingerprint(self, head: Head) -> str:
        """A hash of weights, configuration, tokenizer and, if its name does not say what it is, the head."""
        after = head.contents() if head.name.startswith(AUTO) else ()
        return io.hashed([self.digest.encode(), *after])[:24]

    def with_engine(self, engine: Engine, config: EncoderConfig) -> Core:
        """With other weights; whether these are fine-tuned is not known yet."""
        return dataclasses.replace(self, engine=engine, config=config, tuned=None, source=None)

    @property
    def max_length(self) -> int:
        """The tokens of a text, special tokens included, before it is truncated."""
        return self.tokenizer.max_length

    def model(self) -> TransformerEncoder:
        """The Flax module, sharing the engine's parameters: it must not be changed."""
        module: TransformerEncoder = self.engine.model()
        return module


def copied(module: TransformerEncoder) -> TransformerEncoder:
    """A copy of a Flax module with parameters of its own."""
    import jax
    from flax import nnx

    graph, state = nnx.split(module)
    return nnx.merge(graph, jax.tree.map(lambda leaf: leaf.copy(), state))


def _read_again(source: Callable[[], tuple[Any, Any]], fields: Fields, expected: str) -> Core:
    """An unpickled core; MismatchError if its folder holds another model by now."""
    core: Core = dataclasses.replace(source()[0].core, **fields)
    if core.digest != expected:
        raise MismatchError(
            f"{core.name}: its files are not those of the encoder that was pickled: use the same files there."
        )
    return core


def tokenizer_for(model: Any, folder: Path, max_length: int | None = None) -> BulkTokenizer:
    """A model's tokenizer, checked against the model; its length is by default the folder's."""
    config = model.config
    if max_length is None:
        max_length = longest_text(folder, config)
    if not 3 <= max_length <= config.longest_input:
        raise InputError(f"max_length={max_length}: this model reads 3 to {config.longest_input} tokens.")
    tokenizer = BulkTokenizer(folder, max_length, config.vocab_size, special_tokens=model.special_tokens)
    if tokenizer.vocab_size > config.vocab_size:
        more = tokenizer.vocabulary[config.vocab_size :]
        raise ModelError(
            f"{folder}: the tokenizer has {counted(len(more), 'tokens')} more than the {config.vocab_size:,} rows of"
            f" the model's embedding, such as {more[-1]!r:.80}: remove what is too much, or train"
            " the missing rows (resize_token_embeddings in transformers)."
        )
    return tokenizer
