"""A model with its tokenizer and a head: what decides a sentence's vector, and what can be made of it."""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxwhiten.codes import Code
from jaxwhiten.encoding.batching import Batch
from jaxwhiten.encoding.engine import JAX, Engine
from jaxwhiten.encoding.idf import inverse_document_frequencies
from jaxwhiten.encoding.similarity import check_similarity
from jaxwhiten.encoding.stream import BatchRunner, ReadyHead
from jaxwhiten.encoding.table import TableRunner
from jaxwhiten.errors import InputError, MismatchError, ModelError, spelled
from jaxwhiten.head import AUTO, AfterPrompt, Head, Normalize, Step, Tables, Whiten, canonical, code_steps
from jaxwhiten.models import TransformerEncoder
from jaxwhiten.runtime.compilation import keep_compiled
from jaxwhiten.text import BulkTokenizer, prompt_named
from jaxwhiten.whitening import Whitening, check_provenance

DEFAULT_MAX_LENGTH = 64

M = TypeVar("M", bound="ModelWithHead")


class ModelWithHead:
    """What an `Encoder` encodes with; arguments and attributes are described there."""

    def __init__(
        self,
        model: TransformerEncoder,
        tokenizer_folder: str | Path,
        *,
        pooling: str = "mean",
        max_length: int = DEFAULT_MAX_LENGTH,
        name: str = "",
        head: Head | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str = "cosine",
        device: str | jax.Device | None = None,
        engine: str | Engine = JAX,
    ):
        self.config, self.prompts = model.config, dict(prompts or {})
        self.similarity_fn_name = check_similarity(similarity_fn_name)
        self._default_prompt_name = default_prompt_name
        self.name = name or str(tokenizer_folder)
        if not 3 <= max_length <= self.config.longest_input:
            raise InputError(
                f"{spelled('max_length')} is {max_length}; this model takes 3 to {self.config.longest_input} tokens."
            )
        self.max_length = max_length
        self.tokenizer = BulkTokenizer(
            Path(tokenizer_folder), max_length, self.config.vocab_size, special_tokens=not self.config.static
        )
        if self.tokenizer.vocab_size > self.config.vocab_size:
            raise ModelError(
                f"{tokenizer_folder}: the tokenizer has {self.tokenizer.vocab_size} entries, the model's embedding "
                f"{self.config.vocab_size} rows; they do not belong together."
            )
        self._tables = Tables(self.tokenizer.mask_token_id, {})
        if not isinstance(engine, Engine):
            engine = Engine.named(engine, jnp.dtype(model.dtype).name if engine == JAX else None)
        self.engine = engine.name
        self._forward = engine.forward(model, max_length, device)
        self.dtype = self._forward.dtype
        runner = TableRunner if self.config.static else BatchRunner
        self._runner = runner(self._forward, max_length, self.config.pad_token_id)
        head = head or Head.named(pooling, self._tables)
        if default_prompt_name is not None:
            head = head.with_prompt(prompt_named(self.prompts, default_prompt_name))
        self._set_head(head)
        keep_compiled()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}: {self.head.summary}, {self.dimension} dimensions,"
            f" up to {self.max_length} tokens, {self.dtype}{'' if self.engine == JAX else f' by {self.engine}'})"
        )

    def _with_head(self: M, head: Head) -> M:
        """This encoder with another head by default; weights and compiled programs are shared."""
        result = copy.copy(self)
        result._set_head(head)
        return result

    def _set_head(self, head: Head) -> None:
        self._ready: dict[str, ReadyHead] = {}
        self.head, self.pooling = head, head.name
        self.dimension = self._checked_width(head)
        self.__dict__.pop("fingerprint", None)

    def _checked_width(self, head: Head) -> int:
        try:
            return head.width(self.config)
        except ModelError as error:
            raise ModelError(f"{self.name}: {error}") from error

    def _named(self, name: str, prompt: str | None = None) -> ReadyHead:
        """The head of a name, checked and on the devices; `"auto"` is this encoder's own.

        Args:
          name: Of a pooling.
          prompt: In front of the sentences, in place of the head's own.

        Raises:
          InputError, ModelError: No such pooling, or one that this model cannot serve.
        """
        if name not in self._ready:
            if name == AUTO and self.pooling != AUTO:
                raise InputError("Pooling 'auto' has no answer here: name a pooling, or load the folder with 'auto'.")
            head = self.head if name == AUTO else Head.named(name, self._tables)
            ready = ReadyHead(head, self._forward.place(head.steps), self._checked_width(head))
            self._ready[name] = self._prompted(ready, head.form.prompt or "")
        ready = self._ready[name]
        return ready if prompt is None else self._prompted(ready, prompt)

    def _prompted(self, ready: ReadyHead, prompt: str) -> ReadyHead:
        """The head with another prompt. Its length is an argument of the compiled function, not a part of it."""
        head = ready.head.with_prompt(prompt)
        steps = ready.steps
        if any(isinstance(step, AfterPrompt) for step in steps):
            length = self.tokenizer.prompt_length(head.form.prompt) if head.form.prompt else 0
            placed = self._forward.place(np.int32(length))
            steps = tuple(AfterPrompt(s.pooling, placed) if isinstance(s, AfterPrompt) else s for s in steps)
        return ReadyHead(head, steps, ready.width)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of weights, configuration, tokenizer and head; equal for equal encoders wherever they came from."""
        digest = hashlib.sha256(self.tokenizer.to_json().encode())
        for part in itertools.chain(self._forward.contents(), self.head.contents() if self.pooling == AUTO else ()):
            digest.update(part)
        return digest.hexdigest()[:24]

    def encoding(self, pooling: str | None = None, prompt: str | None = None) -> dict[str, Any]:
        """How vectors are made: what an index or a whitening keeps, and what must agree when they meet again.

        Args:
          pooling: The pooling used, where it is not the encoder's own.
          prompt: The text in front of the sentences, where it is not the head's own.

        Returns:
          model, fingerprint, pooling, max_length and dtype; engine where it is not JAX; prompt where it is another than
          the head's own.
        """
        pooling = canonical(pooling or self.pooling)
        facts = {
            "model": str(self.name),
            "fingerprint": self.fingerprint,
            "pooling": pooling,
            "max_length": self.max_length,
            "dtype": self.dtype,
        }
        if self.engine != JAX:
            facts["engine"] = self.engine
        if prompt is not None and self._named(pooling, prompt).head.form != self._named(pooling).head.form:
            facts["prompt"] = prompt
        return facts

    def model(self) -> TransformerEncoder:
        """The Flax module, sharing its parameters."""
        return self._forward.model()

    def plan(self, lengths: Int[np.ndarray, " n"], batch_size: int | None = None) -> Iterator[Batch]:
        """How sentences of these lengths, in tokens, are cut into batches on this machine, see `layout.plan`."""
        return self._runner.plan(lengths, batch_size)

    def width(self, pooling: str) -> int:
        """Width of the vectors of a pooling."""
        return self._named(canonical(pooling)).width

    def output_dtype(self, pooling: str) -> type[np.generic]:
        """Of what `encode` gives for a pooling: float32, or uint8 where the head ends with a code."""
        return self._named(canonical(pooling)).head.dtype

    def with_pooling(self: M, pooling: str) -> M:
        """An encoder with another pooling by default, and no default prompt; weights and compiled programs are shared.

        Raises:
          InputError, ModelError: No such pooling, or one that this model cannot serve.
        """
        return self._with_head(self._named(canonical(pooling)).head)

    def then(self: M, *steps: Step) -> M:
        """An encoder whose head has further steps; weights and compiled programs are shared.

        Args:
          *steps: Steps on vectors, such as `jaxwhiten.head.Truncate(64)`.

        Raises:
          MismatchError, InputError: A step that takes vectors of another width.
        """
        return self._with_head(self.head.then(*steps))

    def with_whitening(
        self: M, whitening: Whitening, *, normalize: bool = True, where: str = "The whitening", **changes: Any
    ) -> M:
        """An encoder whose compiled program ends with a whitening: the full vectors never leave the device.

        Args:
          whitening: A fitted whitening of this encoder's vectors.
          normalize: Whether the whitened vectors are scaled to unit length.
          where: What the whitening is called in messages, such as its file.
          **changes: `n_components`, `beta`, `gamma` or other parameters that differ from the whitening's.

        Returns:
          The encoder; weights are shared.

        Raises:
          MismatchError: The whitening was fitted on vectors of another encoder, pooling or width.
          InputError: A parameter that cannot be.
          NotFittedError: The whitening was not fitted.
        """
        if changes:
            whitening = whitening.with_params(**changes)
        self.check_whitening(whitening, where)
        return self.then(Whiten.of(whitening), *[Normalize()] * normalize)

    def with_code(self: M, code: Code, where: str = "The code") -> M:
        """An encoder whose compiled program ends with a code: bytes leave the device, the vectors never do.

        Args:
          code: A fitted code of this encoder's vectors (`jaxwhiten.codes`), of those of `without_code` where it has a
            code, whose place it takes.
          where: What the code is called in messages, such as its file.

        Returns:
          The encoder; weights are shared. Queries are encoded by `without_code`.

        Raises:
          MismatchError: The code was fitted on vectors of another encoder, pooling or width.
          NotFittedError: The code was not fitted.
        """
        floats = self.without_code()
        floats.check_whitening(code, where)
        return floats.then(*code_steps(code))

    def without_code(self: M) -> M:
        """This encoder up to the vectors that its code codes: what queries are encoded by; itself without a code."""
        return self if self.head.code is None else self._with_head(self.head.without_code())

    def before_whitening(self: M) -> M:
        """This encoder up to its whitening: what gives the vectors that it was fitted on; itself without one."""
        return self if self.head.whitening is None else self._with_head(self.head.before_whitening())

    def check_whitening(self, whitening: Whitening | Code, where: str = "The whitening") -> None:
        """Raises `MismatchError` if a whitening was fitted on other vectors than this encoder's, as far as it says so.

        Args:
          whitening: A fitted whitening or code.
          where: What it is called in messages.
        """
        check_provenance(where, whitening.provenance, self.encoding())
        if whitening.n_features_in_ != self.dimension:
            raise MismatchError(
                f"{where} takes vectors of {whitening.n_features_in_} dimensions; {self.name} gives {self.dimension}."
            )

    def fit_idf(self, sentences: Iterable[str]) -> str:
        """Counts in how many sentences each token occurs, for the pooling that weighs tokens by it.

        Args:
          sentences: The corpus, read once.

        Returns:
          The pooling's name: `"idf:"` and a hash of the weights, log((n + 1) / (count + 1)).

        Raises:
          InputError: No sentences, or an item that is not a string.
        """
        return self.add_idf(inverse_document_frequencies(sentences, self.tokenizer, self.config.vocab_size))

    def add_idf(self, weights: Float[np.ndarray, " vocab"]) -> str:
        """Takes a weight for every token id; `fit_idf` makes them of a corpus.

        Args:
          weights: One per row of the model's word embedding, none below 0.

        Returns:
          The pooling's name.

        Raises:
          InputError: Weights of another length, below 0, or not finite.
        """
        weights = np.ascontiguousarray(weights, np.float32)
        if weights.shape != (self.config.vocab_size,) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise InputError(f"Expected {self.config.vocab_size} finite weights, none below 0; got {weights.shape}.")
        table = hashlib.sha256(weights.tobytes()).hexdigest()[:8]
        self._tables = Tables(self._tables.mask_id, {**self._tables.idf, table: weights})
        return f"idf:{table}"
