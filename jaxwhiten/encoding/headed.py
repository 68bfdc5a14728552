"""What an encoder's head decides: the space of its vectors, and encoders with other heads that share its weights."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from jaxwhiten.codes import Code, check_whitened
from jaxwhiten.codes.fit import Fit
from jaxwhiten.encoding import similarity
from jaxwhiten.encoding.loading import tokenizer_for
from jaxwhiten.encoding.origin import EncoderOrigin, Lease, Weights
from jaxwhiten.encoding.stream import BLOCK, ReadyHead, Run, progress
from jaxwhiten.engines import DEFAULT, Engine, engine_for
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head import AUTO, Head, Normalize, Quantise, Step, Tables, Whiten, canonical
from jaxwhiten.space import VectorSpace, check_space
from jaxwhiten.text import Texts, as_texts, prompt_for, prompt_named, text_blocks
from jaxwhiten.whitening import Whitening

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder
    from jaxwhiten.search import Index

H = TypeVar("H", bound="Headed")


class Headed:
    """The base of `Encoder`, which describes the arguments: a model in an engine, its tokenizer, and its head."""

    def __init__(
        self,
        model: TransformerEncoder,
        tokenizer_folder: str | Path,
        *,
        pooling: str = "mean",
        max_length: int | None = None,
        name: str = "",
        head: Head | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str = "cosine",
        device: Any = None,
        engine: str | Engine = DEFAULT,
        tuned: bool | None = None,
    ):
        self.config, self.prompts, self._bare = model.config, dict(prompts or {}), False
        self._tuned = tuned  # what the caller or the folder says
        self.similarity_fn_name = similarity.check_similarity(similarity_fn_name)
        self.name, self._default_prompt_name = name or str(tokenizer_folder), default_prompt_name
        self.tokenizer = tokenizer_for(model, Path(tokenizer_folder), max_length)
        self.max_length = max_length = self.tokenizer.max_length
        self._tables = Tables(self.tokenizer.mask_token_id, {})
        engine = engine_for(engine, model, max_length, device) if isinstance(engine, str) else engine
        self._set_engine(engine)
        head = head or Head.named(pooling, self._tables)
        if default_prompt_name is not None:
            head = head.with_prompt(prompt_named(self.prompts, default_prompt_name))
        self._set_head(head)

    def __copy__(self: H) -> H:
        result = object.__new__(type(self))
        result.__dict__.update(self.__dict__)
        result._origins = {}
        return result

    def __reduce__(self) -> Any:
        raise InputError("An encoder cannot be pickled or deep-copied: save it, and load its folder there.")

    def _set_engine(self, engine: Engine) -> None:
        """Takes an engine with a model."""
        self.executor, self.engine, self.dtype = engine, engine.name, engine.dtype
        self._lease = Lease(Weights(engine, self.tokenizer, self.config))
        self._origins: dict[Any, EncoderOrigin] = {}

    def _with_head(self: H, head: Head) -> H:
        """This encoder with another default head; weights and compiled programs are shared."""
        result = copy.copy(self)
        result._set_head(head)
        return result

    def _set_head(self, head: Head) -> None:
        self._ready: dict[str, ReadyHead] = {}
        self._origins = {}
        self.head, self.pooling = head, head.name
        self.dimension = self._checked_width(head)
        self._source: tuple[Any, Fit] | None = None  # of `shrink`: the encoder before, and what was fitted
        for name in ("fingerprint", "_floats"):
            self.__dict__.pop(name, None)

    def _checked_width(self, head: Head) -> int:
        try:
            return head.width(self.config)
        except ModelError as error:
            raise ModelError(f"{self.name}: {error}") from error

    def _named(self, name: str, prompt: str | None = None) -> ReadyHead:
        """The head of a pooling, checked and placed on the devices; `"auto"` is the encoder's own head."""
        if name not in self._ready:
            if name == AUTO and self.pooling != AUTO:
                raise InputError("Pooling 'auto' cannot be resolved here: specify one, or load the folder with 'auto'.")
            head = self.head
            if name != self.pooling:
                named = Head.named(name.removeprefix(f"{AUTO}:"), self._tables)
                alone = self._bare and not name.startswith(AUTO)
                head = named if alone else head.with_pooling(named, self.config)
            ready = ReadyHead(head, self.executor.place(head.steps), self._checked_width(head))
            self._ready[name] = ready.prompted(head.form.prompt or "", self.tokenizer, self.executor)
        ready = self._ready[name]
        return ready if prompt is None else ready.prompted(prompt, self.tokenizer, self.executor)

    def run_of(self, pooling: str | None = None, prompt: str | None = None, bar: Any = None) -> Run:
        """What `encode` does for one pooling and prompt, in two steps: tokens of texts, and vectors of tokens."""
        ready = self._named(pooling or self.pooling, prompt)
        return Run(self.tokenizer, self.executor, {"": ready}, progress(show=False) if bar is None else bar)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of weights, configuration, tokenizer and head; equal for equal encoders wherever they came from."""
        head = self.head if self.pooling.startswith(AUTO) else None
        return str(self._lease.weights.fingerprint(head))

    @property
    def tuned(self) -> bool:
        """Whether the encoder is fine-tuned for similarity: as specified, as its folder records, or by its vectors.

        The vectors are those of the 780 sentences that ship with the package, before a whitening, which spreads the
        vectors of any encoder. The user's own texts would be a worse test: texts of one subject spread out less.
        """
        return bool(self.space(judged=True).tuned)

    def judged(self: H) -> H:
        """This encoder with its answer recorded, which `save` keeps."""
        result = copy.copy(self)
        result._tuned = self.tuned
        return result

    def space(self, pooling: str | None = None, prompt: str | None = None, judged: bool = False) -> VectorSpace:
        """The space of the vectors of `encode` with this pooling and prompt, by default the head's own.

        `judged` is whether it records `tuned` even if the sentences must be encoded for that.
        """
        coded = self.head.code if pooling in (None, self.pooling) else None
        origin = self.origin(pooling or self.pooling, prompt)
        space = dataclasses.replace(origin.space(judged), dimension=origin.head.width(self.config))
        if coded is None:
            return space
        return dataclasses.replace(space, code=f"{coded.name}-{coded.nbytes}-{self.fingerprint[:8]}")

    def origin(self, pooling: str, prompt: str | None = None) -> EncoderOrigin:
        """Where vectors with this pooling and prompt come from; of codes, the vectors that they represent."""
        key = pooling, prompt, *self.prompts.items()
        if key not in self._origins:
            name = canonical(pooling)
            floats = (self if name == self.pooling else self.with_pooling(name)).without_code()
            self._origins[key] = EncoderOrigin(
                weights=self._lease.weights,
                head=floats.head,
                pooling=floats.pooling,
                prompt=prompt,
                prompts=dict(self.prompts),
                model=str(self.name),
                max_length=self.max_length,
                dtype=self.dtype,
                engine=self.engine,
                tuned=self._tuned,
            )
        return self._origins[key]

    def encoding(self, pooling: str | None = None, prompt: str | None = None) -> dict[str, Any]:
        """The record of `space`, which an index or a whitening stores, and which must agree when it is used."""
        return self.space(pooling, prompt, judged=True).record()

    def model(self) -> TransformerEncoder:
        """The Flax module, sharing its parameters."""
        return self.executor.model()

    def with_pooling(self: H, pooling: str) -> H:
        """An encoder with another pooling, see `from_pretrained`; weights are shared."""
        return self._with_head(self._named(canonical(pooling)).head)

    def then(self: H, *steps: Step) -> H:
        """An encoder whose head has further steps on vectors, such as `jaxwhiten.head.Truncate(64)`."""
        return self._with_head(self.head.then(*steps))

    def with_whitening(self: H, whitening: Whitening, *, normalize: bool = True, where: str = "the whitening") -> H:
        """An encoder whose compiled program ends with a whitening: the full vectors never leave the device.

        Args:
          whitening: A fitted whitening of this encoder's vectors.
          normalize: Whether the whitened vectors are scaled to unit length.
          where: Name of the whitening in messages, such as its file.

        Raises:
          MismatchError: The whitening was fitted on vectors of another encoder, pooling or width.
        """
        self.check_whitening(whitening, where)
        encoder = self.then(Whiten.of(whitening))
        return encoder.then(Normalize()) if normalize else encoder

    def with_code(self: H, code: Code) -> H:
        """An encoder whose compiled program ends with a code: only bytes leave the device.

        Args:
          code: A fitted code of this encoder's vectors (`jaxwhiten.codes`). If the encoder has a code already, the new
            one replaces it and is of the vectors of `without_code`. Queries are encoded by `without_code`.

        Raises:
          MismatchError: The code was fitted on vectors of another encoder, pooling or width, or for another whitening.
        """
        floats = self.without_code()
        floats.check_whitening(code, "the code")
        check_whitened(code, floats.head.whitening)
        return floats.then(Quantise.of(code))

    def without_code(self: H) -> H:
        """This encoder without its code, for encoding queries; itself if it has no code."""
        return self if self.head.code is None else self._floats

    @functools.cached_property
    def _floats(self: H) -> H:
        return self._with_head(self.head.without_code())

    def before_whitening(self: H) -> H:
        """This encoder up to its whitening, or else its code, for vectors to fit it on; itself if it has neither."""
        return self.without_code() if self.head.whitening is None else self._with_head(self.head.before_whitening())

    def check_whitening(
        self, whitening: Whitening | Code, where: str = "the whitening", role: str | None = None
    ) -> None:
        """Raises `MismatchError` if a whitening was, by its provenance, fitted on vectors of another space.

        With a `role`, `"query"` or `"document"`, it must have been fitted on texts with the prompt of this role;
        without, any prompt of this encoder will do. Another maximum length is a warning.
        """
        fitted_on = whitening.origin
        if fitted_on is None:
            expected, own = VectorSpace(), VectorSpace(dimension=self.head.width(self.config))
        else:
            expected, own = fitted_on.space(), self.space()
        expected = dataclasses.replace(expected, dimension=whitening.n_features_in_)
        if fitted_on is not None and (role or expected.prompt in (own.prompts or {}).values()):
            own = self.space(prompt=self.prompt_for(role) if role else expected.prompt)
        check_space(where, expected, own, "refit it", tolerated=("max_length",))

    def fit_idf(self, sentences: Texts) -> str:
        """Counts the sentences in which each token occurs; returns the name of the pooling with these weights.

        A token in count of n sentences has the weight log((n + 1) / (count + 1)).

        References:
          Zhang et al. 2020, "BERTScore: Evaluating Text Generation with BERT", section 3 (importance weighting).
        """
        total, size = 0, self.config.vocab_size
        counts = np.zeros(size, np.int64)
        for block in text_blocks(sentences, BLOCK):
            total += len(block)
            counts += self.tokenizer(block).document_frequencies(size)
        if not total:
            raise InputError("No sentences to count tokens in.")
        weights = np.log((total + 1) / (counts + 1)).astype(np.float32)
        table = hashlib.sha256(weights.tobytes()).hexdigest()[:8]
        self._tables = Tables(self._tables.mask_id, {**self._tables.idf, table: weights})
        return f"idf:{table}"

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt that the default head puts in front of every sentence, or None."""
        return self._default_prompt_name if self.head.form.prompt else None

    def prompt_for(self, role: str) -> str | None:
        """The prompt of a `"query"` or a `"document"`; None, which is the default prompt, if neither role has one."""
        return prompt_for(self.prompts, role)

    def index(self, texts: Texts, *, ids: Any = None, backend: str = "faiss-flat", **how: Any) -> Index:
        """A search index of texts, which knows this encoder: `index.search("a text", k=3)` gives hits.

        If the encoder ends with a code, documents are stored as codes, and queries are compared with them as floats.

        Args:
          texts: The documents, in any container of `jaxwhiten.text.as_texts`.
          ids: Their own ids: strings, or integers from 0. Without them, documents are numbered from 0.
          backend: A name of `jaxwhiten.search.BACKENDS`.
          **how: Arguments of `jaxwhiten.build_index`, such as `bytes` and `rescore`.
        """
        from jaxwhiten.search.text import index_of

        encoder: Any = self
        if self._source is not None and not any(map(how.get, ("codes", "bytes", "whitening"))):
            encoder, fitted = self._source  # the index then needs no folder of this encoder
            how["whitening"], how["codes"] = fitted.whitening, fitted.code
        return index_of(encoder, as_texts(texts, "document"), ids=ids, backend=backend, **how)
