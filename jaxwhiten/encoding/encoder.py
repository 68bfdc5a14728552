"""Text to vectors: tokenise, batch by length, run encoder and head as one compiled function, in any amount.

    encoder = Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
    vectors = encoder.encode(["A man plays a guitar.", "Someone makes music."])  # float32 [2, 384]
    encoder.whiten(corpus, k=128).save("small")  # a sentence-transformers folder that gives 128 numbers

While the device works on one block of sentences, the host tokenises the next. Batches are split over all local
devices. A vector depends on its own sentence only: not on its neighbours, the batch size or the order.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float, Int
from tqdm import tqdm

from jaxwhiten.codes import Code
from jaxwhiten.encoding.batching import Batch
from jaxwhiten.encoding.forward import Forward
from jaxwhiten.encoding.precision import encode_at
from jaxwhiten.encoding.stream import BLOCK, BatchRunner, ReadyHead, checked_blocks, progress, run_blocks, split
from jaxwhiten.errors import InputError, MismatchError, ModelError
from jaxwhiten.head import (
    AUTO,
    Head,
    Normalize,
    Step,
    Tables,
    Whiten,
    canonical,
    code_steps,
    read_head,
    says_head,
    write_folder,
)
from jaxwhiten.models import TransformerEncoder, loading
from jaxwhiten.runtime.compilation import keep_compiled
from jaxwhiten.text import BulkTokenizer, checked_text
from jaxwhiten.whitening import Moments, Whitening, check_provenance

DEFAULT_MAX_LENGTH = 64


Vectors = np.ndarray
Names = str | Sequence[str] | None


class PoolingWarning(UserWarning):
    """A model folder that does not say how its vectors are pooled."""


class Encoder:
    """A BERT-family encoder with its tokenizer and a head: what is done after the hidden states.

    Usually made by `from_pretrained`; the constructor takes the parts, for models made in memory.

    Args:
      model: A Flax NNX encoder (`jaxwhiten.models`).
      tokenizer_folder: Where its tokenizer lies.
      pooling: Default pooling, a name of `jaxwhiten.POOLINGS`.
      max_length: Longest sentence in tokens, special tokens counted; longer ones are cut.
      name: What the model is called in results and provenance.
      head: Takes the place of `pooling`.

    Attributes:
      name: As given.
      head: The default head.
      pooling: Its name; `"auto"` for a head that does more than a pooling.
      max_length: As given.
      dtype: What matrix products run in, `"float32"` or `"bfloat16"`.
      dimension: Width d of the vectors of the default head.
      tokenizer: Its tokenizer, truncating to `max_length`.
    """

    def __init__(
        self,
        model: TransformerEncoder,
        tokenizer_folder: str | Path,
        *,
        pooling: str = "mean",
        max_length: int = DEFAULT_MAX_LENGTH,
        name: str = "",
        head: Head | None = None,
    ):
        self.config = model.config
        self.name = name or str(tokenizer_folder)
        if not 3 <= max_length <= self.config.longest_input:
            raise InputError(f"max_length is {max_length}; this model takes 3 to {self.config.longest_input} tokens.")
        self.max_length = max_length
        self.tokenizer = BulkTokenizer(Path(tokenizer_folder), max_length, self.config.vocab_size)
        if self.tokenizer.vocab_size > self.config.vocab_size:
            raise ModelError(
                f"{tokenizer_folder}: the tokenizer has {self.tokenizer.vocab_size} entries, the model's embedding "
                f"{self.config.vocab_size} rows; they do not belong together."
            )
        self._tables = Tables(self.tokenizer.mask_token_id, {})
        self._forward = Forward(model)
        self.dtype = self._forward.dtype
        self._runner = BatchRunner(self._forward, max_length, self.config.pad_token_id)
        self._set_head(head or Head.named(pooling, self._tables))
        keep_compiled()

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        pooling: str = AUTO,
        max_length: int | None = None,
        dtype: str = "float32",
        revision: str | None = None,
    ) -> Encoder:
        """Reads an encoder from a local folder or the hub.

        Args:
          model: Folder or hub id; plain Hugging Face and sentence-transformers layouts, whitened ones included.
          pooling: `"auto"` for all that a sentence-transformers folder does after its Transformer, and the mean with a
            warning where the folder does not say; or a name of `jaxwhiten.POOLINGS` or `jaxwhiten.PARAMETRIC`.
          max_length: Longest sentence in tokens; by default what the folder says with `"auto"`, else 64.
          dtype: `"float32"` or `"bfloat16"`.
          revision: Commit, tag or branch on the hub.

        Returns:
          The encoder, its weights on all local devices.

        Raises:
          ModelError: The folder cannot be read; the message names the file or tensor and says what to do.
          InputError: An unknown pooling or dtype, or a `max_length` the model cannot take.
        """
        folder = loading.resolve_folder(model, revision=revision)
        pooling = canonical(pooling)
        module, config, weights_folder = loading.load_model(folder, dtype=dtype)
        tokenizer_folder = weights_folder if loading.has_tokenizer(weights_folder) else folder
        head = None
        if pooling == AUTO and says_head(folder):
            head, longest = read_head(folder, config)
            if max_length is None:
                max_length = min(longest or config.longest_input, config.longest_input)
        elif pooling == AUTO:
            pooling = "mean"
            warnings.warn(
                f"{model} does not say how its token vectors are pooled: taking the mean. An encoder that was not tuned"
                " for similarity is often better with pooling='first_last_avg'; pooling='mean' silences this.",
                PoolingWarning,
                stacklevel=2,
            )
        length = DEFAULT_MAX_LENGTH if max_length is None else max_length
        return cls(module, tokenizer_folder, pooling=pooling, max_length=length, name=str(model), head=head)

    def __repr__(self) -> str:
        return (
            f"Encoder({self.name!r}: {self.head.summary}, {self.dimension} dimensions,"
            f" up to {self.max_length} tokens, {self.dtype})"
        )

    def _with_head(self, head: Head) -> Encoder:
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

    def _named(self, name: str) -> ReadyHead:
        """The head of a name, checked and on the devices; `"auto"` is this encoder's own.

        Raises:
          InputError, ModelError: No such pooling, or one that this model cannot serve.
        """
        if name not in self._ready:
            if name == AUTO and self.pooling != AUTO:
                raise InputError("Pooling 'auto' has no answer here: name a pooling, or load the folder with 'auto'.")
            head = self.head if name == AUTO else Head.named(name, self._tables)
            self._ready[name] = ReadyHead(head, self._forward.place(head.steps), self._checked_width(head))
        return self._ready[name]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of weights, configuration, tokenizer and head; equal for equal encoders wherever they came from."""
        digest = hashlib.sha256(self.tokenizer.to_json().encode())
        for part in itertools.chain(self._forward.contents(), self.head.contents() if self.pooling == AUTO else ()):
            digest.update(part)
        return digest.hexdigest()[:24]

    def encoding(self, pooling: str | None = None) -> dict[str, Any]:
        """How vectors are made: what an index or a whitening keeps, and what must agree when they meet again.

        Args:
          pooling: The pooling used, where it is not the encoder's own.

        Returns:
          model, fingerprint, pooling, max_length and dtype.
        """
        return {
            "model": str(self.name),
            "fingerprint": self.fingerprint,
            "pooling": canonical(pooling or self.pooling),
            "max_length": self.max_length,
            "dtype": self.dtype,
        }

    def model(self) -> TransformerEncoder:
        """The Flax module, sharing its parameters."""
        return self._forward.model()

    def width(self, pooling: str) -> int:
        """Width of the vectors of a pooling."""
        return self._named(canonical(pooling)).width

    def output_dtype(self, pooling: str) -> type[np.generic]:
        """Of what `encode` gives for a pooling: float32, or uint8 where the head ends with a code."""
        return self._named(canonical(pooling)).head.dtype

    def with_pooling(self, pooling: str) -> Encoder:
        """An encoder with another pooling by default; weights and compiled programs are shared.

        Raises:
          InputError, ModelError: No such pooling, or one that this model cannot serve.
        """
        return self._with_head(self._named(canonical(pooling)).head)

    def then(self, *steps: Step) -> Encoder:
        """An encoder whose head has further steps; weights and compiled programs are shared.

        Args:
          *steps: Steps on vectors, such as `jaxwhiten.head.Truncate(64)`.

        Raises:
          MismatchError, InputError: A step that takes vectors of another width.
        """
        return self._with_head(self.head.then(*steps))

    def with_whitening(
        self, whitening: Whitening, *, normalize: bool = True, where: str = "The whitening", **changes: Any
    ) -> Encoder:
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

    def with_code(self, code: Code, where: str = "The code") -> Encoder:
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

    def without_code(self) -> Encoder:
        """This encoder up to the vectors that its code codes: what queries are encoded by; itself without a code."""
        return self if self.head.code is None else self._with_head(self.head.without_code())

    def before_whitening(self) -> Encoder:
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

    def whiten(self, rows: Iterable[str] | Float[np.ndarray, "n d"], k: int | None = None, **params: Any) -> Encoder:
        """Fits a whitening and puts it behind this encoder.

        Args:
          rows: Sentences, read once and encoded in bounded memory; or vectors of this encoder.
          k: Dimensions kept; None for all.
          **params: `beta`, `gamma`, `shrinkage` and others of `jaxwhiten.Whitening`.

        Returns:
          The encoder, see `with_whitening`.

        Raises:
          InputError: No rows, an item that is not a string, or a parameter that cannot be.
        """
        moments = Moments().update(rows) if isinstance(rows, np.ndarray) else self.moments(rows)
        return self.with_whitening(
            Whitening.from_moments(moments, n_components=k, provenance=self.encoding(), **params)
        )

    def moments(self, sentences: Iterable[str]) -> Moments:
        """Moments of the vectors of any number of sentences, in bounded memory.

        Args:
          sentences: Read once.

        Raises:
          InputError: An item is not a string; its index is named.
        """
        moments = Moments()
        for block in self.encode_stream(sentences):
            moments.update(block)
        return moments

    def save(self, folder: str | Path, *, card: str | None = None, dtype: str | None = None) -> Path:
        """Writes a sentence-transformers folder: encoder, tokenizer, and every step of the head.

        `from_pretrained` and sentence-transformers read it, and both give the vectors of this encoder.

        Args:
          folder: Made if missing; files of the same names are replaced.
          card: Text of README.md; none is written without it.
          dtype: Type of the stored weights; by default this encoder's.

        Returns:
          The folder.

        Raises:
          InputError: A step that no module of sentence-transformers can do, or the model's own folder.
        """
        folder = Path(folder)
        if folder.exists() and Path(self.name).exists() and folder.samefile(self.name):
            raise InputError(f"{folder}: is the model's own folder; name another one.")
        return write_folder(folder, self.model(), self.tokenizer, self.head, dtype=dtype or self.dtype, card=card)

    def fit_idf(self, sentences: Iterable[str]) -> str:
        """Counts in how many sentences each token occurs, for the pooling that weighs tokens by it.

        Args:
          sentences: The corpus, read once.

        Returns:
          The pooling's name: `"idf:"` and a hash of the weights, log((n + 1) / (count + 1)).

        Raises:
          InputError: No sentences, or an item that is not a string.

        References:
          Zhang et al. 2020, "BERTScore: Evaluating Text Generation with BERT", section 3 (importance weighting).
        """
        total, counts = 0, np.zeros(self.config.vocab_size, np.int64)
        for block in checked_blocks(sentences, BLOCK):
            total += len(block)
            counts += self.tokenizer(block).document_frequencies(self.config.vocab_size)
        if not total:
            raise InputError("No sentences to count tokens in.")
        return self.add_idf(np.log((total + 1) / (counts + 1)))

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

    @overload
    def encode(  # type: ignore[overload-overlap]  # a string is a sequence of strings, too
        self,
        sentences: Sequence[str],
        *,
        pooling: str | None = None,
        precision: str | Code | None = None,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Vectors: ...
    @overload
    def encode(
        self,
        sentences: Sequence[str],
        *,
        pooling: Sequence[str],
        precision: str | Code | None = None,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> dict[str, Vectors]: ...
    def encode(
        self,
        sentences: Any,
        *,
        pooling: Any = None,
        precision: Any = None,
        batch_size: Any = None,
        show_progress: Any = None,
    ) -> Any:
        """Encodes sentences.

        Args:
          sentences: Any number of strings; an empty string is encoded as `[CLS] [SEP]`.
          pooling: A name, or several; default `self.pooling`. One forward pass serves all that read the sentence as
            it is; one that rewrites it, such as `prompt`, takes its own.
          precision: None for what the head gives; `"float32"` for its vectors, without a code at its end; a fitted code
            of these vectors; or `"int8"`, `"uint8"`, `"binary"` or `"ubinary"` for what sentence-transformers gives.
            As there, the ranges of int8 and uint8 are those of the sentences given; a fitted code keeps its own.
          batch_size: At most this many sentences per batch; by default a token budget decides.
          show_progress: True or False; None shows a bar on a terminal when it takes over a second.

        Returns:
          float32 [n, d] in the order of the sentences, or uint8 [n, bytes] of a head that ends with a code; for several
          poolings a dict of such arrays by name.

        Raises:
          InputError: An item is not a string; its index is named, and nothing was encoded. Or no such precision.
          MismatchError: A code of other vectors.
        """
        sentences = checked_text(sentences)
        names, single = self._pooling_names(pooling)
        if precision is not None:
            how = {"batch_size": batch_size, "show_progress": show_progress}
            coded = {name: encode_at(self, sentences, precision, name, **how) for name in names}
            return coded[names[0]] if single else coded
        out = {name: np.empty((len(sentences), self.width(name)), self.output_dtype(name)) for name in names}
        with progress(len(sentences), show_progress) as bar:
            start = 0
            for block in self._run(split(sentences, BLOCK), names, batch_size, bar):
                size = len(block[names[0]])
                for name in names:
                    out[name][start : start + size] = block[name]
                start += size
        return out[names[0]] if single else out

    def encode_stream(
        self,
        sentences: Iterable[str],
        *,
        pooling: Names = None,
        block_size: int = BLOCK,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[Vectors] | Iterator[dict[str, Vectors]]:
        """Encodes any iterable of sentences in bounded memory.

        Args:
          sentences: Read lazily, at most two blocks ahead.
          pooling: As in `encode`.
          block_size: Sentences per block; they are sorted by length within it.
          batch_size: As in `encode`.
          show_progress: As in `encode`.

        Yields:
          For each block, in input order, what `encode` would return for it.

        Raises:
          InputError: An item is not a string; its index is named. All blocks before its own were yielded.
        """
        names, single = self._pooling_names(pooling)
        if block_size < 1:
            raise InputError(f"block_size is {block_size}; it must be at least 1.")
        total = len(sentences) if isinstance(sentences, Sequence) else None
        with progress(total, show_progress) as bar:
            for block in self._run(checked_blocks(sentences, block_size), names, batch_size, bar):
                yield block[names[0]] if single else block

    def _pooling_names(self, pooling: Names) -> tuple[tuple[str, ...], bool]:
        """The names to compute, under which the caller asked for them, and whether one array is wanted."""
        single = pooling is None or isinstance(pooling, str)
        names = tuple(dict.fromkeys([pooling or self.pooling] if isinstance(pooling, str | None) else pooling))
        if not names:
            raise InputError("pooling is an empty list; name at least one.")
        for name in names:
            self._named(name)
        return names, single

    def plan(self, lengths: Int[np.ndarray, " n"], batch_size: int | None = None) -> Iterator[Batch]:
        """How sentences of these lengths, in tokens, are cut into batches on this machine, see `plan_batches`."""
        return self._runner.plan(lengths, batch_size)

    def _run(
        self, blocks: Iterable[list[str]], names: tuple[str, ...], batch_size: int | None, bar: tqdm
    ) -> Iterator[dict[str, Vectors]]:
        heads = {name: self._named(name) for name in names}
        return run_blocks(blocks, self.tokenizer, self._runner, heads, batch_size, bar)
