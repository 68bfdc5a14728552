"""Text to vectors: tokenise, batch by length, run encoder and head as one compiled function, in any amount.

    encoder = Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
    vectors = encoder.encode(["A man plays a guitar.", "Someone makes music."])  # float32 [2, 384]
    encoder.whiten(corpus, k=128).save("small")  # a sentence-transformers folder that gives 128 numbers

Batches are split over all local devices. A vector depends only on its own sentence, not on other sentences, the batch
size or the order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, no_type_check, overload

import numpy as np

from jaxwhiten import io
from jaxwhiten.coded import with_code
from jaxwhiten.codes import Code
from jaxwhiten.codes.fit import fit
from jaxwhiten.encoding import similarity, stream
from jaxwhiten.encoding.headed import Headed
from jaxwhiten.encoding.loading import read_parts
from jaxwhiten.encoding.origin import reader
from jaxwhiten.encoding.precision import encode_at
from jaxwhiten.encoding.stream import BLOCK, EncodeOptions, ReadyHead, progress
from jaxwhiten.engines import DEFAULT, FASTEST, chosen, engine_class, engine_for, recorded
from jaxwhiten.errors import InputError
from jaxwhiten.head import AUTO, Head, Settings, Step, Truncate, canonical, longest_text
from jaxwhiten.head.folder import write_folder
from jaxwhiten.head.head import pooling_names
from jaxwhiten.models import folders
from jaxwhiten.shapes import Float, Float32
from jaxwhiten.space import with_space
from jaxwhiten.text import Texts, as_texts, in_role, prompt_named, text_blocks
from jaxwhiten.whitening import Moments

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder


class Encoder(Headed):
    """A BERT-family encoder with its tokenizer and a head: the steps after the hidden states.

    Usually made by `from_pretrained`; the constructor is for models made in memory. Threads may share it.

    >>> Encoder.from_pretrained("jaxwhiten-tiny").encode(["A dog runs.", "It rains."]).shape
    (2, 256)

    Args:
      model: A Flax NNX encoder (`jaxwhiten.models`).
      tokenizer_folder: The folder of its tokenizer.
      pooling, head: The default pooling, a name of `jaxwhiten.POOLINGS`, or a head instead.
      max_length: Tokens of a sentence, special tokens included, before it is truncated; by default the folder's.
      name: Name of the model in results and provenance.
      prompts: Texts to put in front of sentences, by name.
      default_prompt_name: The prompt used if none is named.
      similarity_fn_name: The similarity of `similarity`: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`.
      device: `"cpu"`, `"gpu"`, `"tpu"`, `"gpu:1"` or a JAX device; by default all local ones of JAX's platform.
      engine: A name of `jaxwhiten.engines.ENGINES`, or an `Engine` that already holds the model.
      tuned: Whether the encoder is fine-tuned for similarity, which decides γ; None judges by its vectors.

    Attributes:
      pooling: The name of `head`; `"auto"`, or `"auto:POOLING"`, for a head that does more than a pooling.
      dtype: Dtype of matrix products: `"float32"`, `"bfloat16"` or `"int8"`.
      dimension: Width d of the vectors of the default head.
    """

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        pooling: str = AUTO,
        bare: bool = False,
        max_length: int | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str | None = None,
        truncate_dim: int | None = None,
        device: Any = None,
        engine: str = FASTEST,
        tuned: bool | None = None,
    ) -> Encoder:
        """Reads an encoder from a local folder or the hub.

        Args:
          model: Folder or hub id, in the layout of Hugging Face or sentence-transformers, with or without a whitening.
          pooling: `"auto"` for all steps that a sentence-transformers folder has after its Transformer, or the mean,
            with a warning, if the folder defines none; or a name of `jaxwhiten.POOLINGS`, which replaces the folder's
            pooling. A whitening or code, which was fitted on the other pooling, is then omitted with a warning.
          bare: Whether a named pooling, here or in `encode`, stands without the folder's steps and default prompt.
          max_length: Maximum sentence length in tokens; by default the folder's.
          dtype: Of matrix products: `"float32"`, the default, `"bfloat16"`, or `"int8"`, if the folder has such weights
            (`jaxwhiten.export.save_int8`).
          revision: Commit, tag or branch on the hub.
          prompts: Prompts in addition to the folder's; they override prompts of the same name.
          default_prompt_name: The prompt used if none is named; by default the folder's.
          truncate_dim: Columns kept of every vector; by default the folder's number, else all.
          engine: A name of `jaxwhiten.engines.ENGINES`; or `"auto"` for that of the environment variable
            `JAXWHITEN_ENGINE`, by default the fastest one here that takes the folder.
          similarity_fn_name, device, tuned: As in the constructor; by default the folder's similarity and record.

        Raises:
          ModelError: The folder cannot be read; the message names the file or tensor and a remedy.
          MissingDependencyError: The engine is not installed.
        """
        folder = folders.resolve_folder(model, revision=revision)
        pooling = canonical(pooling)
        dtype = dtype or "float32"
        engine = chosen(engine, folder, dtype, device)
        module, config, weights_folder = engine_class(engine).load(folder, dtype)
        said, head = read_parts(folder, config, str(model), pooling, bare)
        max_length = longest_text(weights_folder, config) if max_length is None else max_length
        truncate_dim = said.truncate_dim if truncate_dim is None else truncate_dim
        encoder = cls(
            module,
            weights_folder if folders.has_tokenizer(weights_folder) else folder,
            pooling="mean" if pooling == AUTO else pooling.removeprefix(f"{AUTO}:"),
            max_length=max_length,
            name=str(model),
            head=head,
            prompts={**said.prompts, **(prompts or {})},
            default_prompt_name=default_prompt_name or said.default_prompt_name,
            similarity_fn_name=similarity_fn_name or said.similarity_fn_name or "cosine",
            engine=engine_for(engine, module, max_length, device, dtype, folder),
            tuned=said.tuned if tuned is None else tuned,
        )
        encoder._bare = bare
        encoder._lease.weights.read = reader(engine, folder, weights_folder, max_length, device, dtype)
        encoder = encoder if truncate_dim is None else encoder.then(Truncate(truncate_dim))
        return encoder if head is None or pooling == AUTO else encoder.with_pooling(pooling)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}: {self.head.summary}, {self.dimension} dimensions,"
            f" up to {self.max_length} tokens, {self.dtype} by {self.engine})"
        )

    def trained(self, model: TransformerEncoder, steps: Sequence[Step]) -> Encoder:
        """An encoder with trained weights and trained steps of the head; its tokenizer, prompts and length stay."""
        result = copy.copy(self)
        result._tuned = None
        result._set_engine(engine_for(DEFAULT, model, self.max_length))
        result._set_head(Head.of(tuple(steps), self.head.form))
        return result

    @overload
    def encode(  # type: ignore[overload-overlap]  # a str is a sequence, too
        self, sentences: str | Texts, *, pooling: str | None = None, **options: Unpack[EncodeOptions]
    ) -> np.ndarray: ...
    @overload
    def encode(
        self, sentences: str | Texts, *, pooling: Sequence[str], **options: Unpack[EncodeOptions]
    ) -> dict[str, np.ndarray]: ...
    @no_type_check  # at run time: an item that is not a string gets a message of its own
    def encode(
        self,
        sentences: str | Texts,
        *,
        pooling: str | Sequence[str] | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: str | Code | None = None,
        batch_size: int | None = None,
        show_progress: bool | None = None,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
    ) -> np.ndarray | dict[str, np.ndarray]:
        """Encodes sentences.

        Args:
          sentences: Strings in any container of `jaxwhiten.text.as_texts`, or one; an empty string is `[CLS] [SEP]`.
          pooling: A name, or several, as in `from_pretrained`; default `self.pooling`. One forward pass serves all
            poolings that read the sentence unchanged; one that rewrites it, such as `promptbert`, needs its own.
          prompt_name: The prompt of `self.prompts` to put in front of every sentence, instead of the default one.
          prompt: The text of a prompt, instead of a name.
          normalize_embeddings: Whether the vectors are scaled to unit length.
          truncate_dim: Columns kept of every vector; all by default.
          precision: None for the head's own result; `"float32"` for its vectors without a final code; a fitted code
            of these vectors; or `"int8"`, `"uint8"`, `"binary"` or `"ubinary"` as in sentence-transformers. As there,
            int8 and uint8 take ranges from the given sentences; a fitted code keeps its own ranges.
          batch_size: Maximum sentences per batch; by default a token budget decides.
          show_progress: True or False; None shows a bar on a terminal if encoding takes over a second.
          show_progress_bar, convert_to_numpy, convert_to_tensor: Arguments of sentence-transformers; results are
            always arrays.

        Returns:
          float32 [n, d] in the order of the sentences, or a `CodedArray` [n, bytes] if the head has a code. For a
          single string, one row without the first axis. For several poolings, a dict of such arrays by name.
          The arrays know their `space`, see `jaxwhiten.space.EncodedArray`.

        Raises:
          InputError: An item is not a string, a name is unknown, or there are fewer columns. Nothing was encoded.
          NonFiniteError: A vector holds NaN or an infinity; the message names the first such text, `rows` has all.
        """
        if convert_to_tensor or not convert_to_numpy:
            raise InputError("Vectors are NumPy arrays: omit convert_to_tensor, and call torch.from_numpy on them.")
        show_progress = show_progress if show_progress_bar is None else show_progress_bar
        alone = isinstance(sentences, str)
        sentences = as_texts([sentences] if alone else sentences)
        heads, single = self._chosen(pooling, prompt_name, prompt)
        if precision is None:
            heads = {name: head.cut(truncate_dim, normalize_embeddings) for name, head in heads.items()}
            bar = progress(sentences, show_progress)
            out = stream.Run(self.tokenizer, self.executor, heads, bar, batch_size).of_list(sentences)
            out = {name: x[0] for name, x in out.items()} if alone else out
            out = {name: self._spaced(x, name, heads[name].head) for name, x in out.items()}
        else:
            how = {"prompt_name": prompt_name, "prompt": prompt, "normalize_embeddings": normalize_embeddings}
            how |= {"truncate_dim": truncate_dim, "batch_size": batch_size, "show_progress": show_progress}
            out = {name: encode_at(self, sentences, precision, name, **how) for name in heads}
            out = {name: x[0] for name, x in out.items()} if alone else out
        return next(iter(out.values())) if single else out

    def encode_query(
        self, sentences: str | Texts, *, pooling: str | None = None, **options: Unpack[EncodeOptions]
    ) -> np.ndarray:
        """Encodes with the prompt `query`. If there is none, uses no prompt, not even the default.

        A `prompt_name` or `prompt` overrides it.
        """
        return self.encode(sentences, pooling=pooling, **in_role(self.prompts, "query", options))

    def encode_document(
        self, sentences: str | Texts, *, pooling: str | None = None, **options: Unpack[EncodeOptions]
    ) -> np.ndarray:
        """`encode` with the first existing prompt of `document`, `passage` and `corpus`, like `encode_query`."""
        return self.encode(sentences, pooling=pooling, **in_role(self.prompts, "document", options))

    def warm_up(self, longest: int = 64) -> Encoder:
        """Compiles the programs for one sentence of up to `longest` tokens, so that no query waits; returns itself."""
        self.run_of().warm_up(longest)
        return self

    def encode_stream(
        self,
        sentences: Texts,
        *,
        pooling: str | Sequence[str] | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        block_size: int = BLOCK,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[np.ndarray] | Iterator[dict[str, np.ndarray]]:
        """Encodes any iterable of sentences in bounded memory, with the options of `encode`.

        Args:
          sentences: Read lazily, at most two blocks ahead.
          block_size: Sentences per block; they are sorted by length within a block.

        Yields:
          For each block, in input order, the result of `encode`; InputError at an item that is not a string.
        """
        heads, single = self._chosen(pooling, prompt_name, prompt)
        heads = {name: head.cut(truncate_dim, normalize_embeddings) for name, head in heads.items()}
        if block_size < 1:
            raise InputError(f"block_size={block_size}: expected at least 1.")
        texts, bar = text_blocks(sentences, block_size), progress(sentences, show_progress)
        for block in stream.Run(self.tokenizer, self.executor, heads, bar, batch_size).in_blocks(texts):
            out = {name: self._spaced(x, name, heads[name].head) for name, x in block.items()}
            yield next(iter(out.values())) if single else out

    def _spaced(self, vectors: np.ndarray, pooling: str, head: Head) -> np.ndarray:
        """Vectors, or codes, that know their space."""
        origin = self.origin(pooling, head.form.prompt)
        return with_space(vectors, origin) if head.code is None else with_code(vectors, head.code, origin)

    def _chosen(
        self, pooling: str | Sequence[str] | None, prompt_name: str | None, prompt: str | None
    ) -> tuple[dict[str, ReadyHead], bool]:
        """The heads to compute, by the names that the caller used, and whether to return a single array."""
        if prompt is None and prompt_name is not None:
            prompt = prompt_named(self.prompts, prompt_name)
        names, single = pooling_names(pooling, self.pooling)
        return {name: self._named(name, prompt) for name in names}, single

    def similarity(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> Float32[np.ndarray, "n m"]:
        """Similarities of all n vectors to all m, by `similarity_fn_name`; distances are negated, codes decoded.

        MismatchError if both sides know their spaces, and these differ.
        """
        return similarity.similarity(embeddings1, embeddings2, self.similarity_fn_name)

    def similarity_pairwise(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> Float32[np.ndarray, " n"]:
        """Similarities of n vectors to the vectors with the same index in the other array; see `similarity`."""
        return similarity.similarity_pairwise(embeddings1, embeddings2, self.similarity_fn_name)

    def moments(self, sentences: Texts, *, prompt: str | None = None) -> Moments:
        """Moments of the vectors of sentences, read once in bounded memory."""
        total, texts = Moments(), text_blocks(sentences, stream.BLOCK)
        for found in self.run_of(prompt=prompt, bar=progress(sentences)).in_blocks(texts):
            total.merge(Moments().update(found[""]))
        total.provenance = self.encoding(prompt=prompt)
        return total

    def whiten(self, rows: Texts | Float[np.ndarray, "n d"], k: int | None = None, **params: Any) -> Encoder:
        """Fits a whitening and appends it to this encoder, as `with_whitening` does.

        γ is 0.25 for an encoder that is fine-tuned for similarity, else 1 (`jaxwhiten.whitening.choose_gamma`).

        Args:
          rows: Sentences, read once and encoded in bounded memory; or vectors of this encoder.
          k: Number of dimensions kept; None for all.
          **params: `beta`, `gamma`, `shrinkage` and other parameters of `jaxwhiten.Whitening`.
        """
        whitening = fit(self._moments_of(rows), n_components=k, **params).whitening
        assert whitening is not None
        return self.with_whitening(whitening)

    def _moments_of(self, rows: Texts | Float[np.ndarray, "n d"]) -> Moments:
        """The moments of sentences' vectors, or of vectors of this encoder."""
        if isinstance(rows, np.ndarray) and rows.dtype.kind not in "OSTU":
            fitted_on = Moments.of(rows)
            fitted_on.provenance = fitted_on.provenance or self.encoding()
        else:
            fitted_on = self.moments(rows, prompt=self.prompt_for("document"))
        return fitted_on

    def shrink(self, texts: Texts, *, k: int | None = None, bytes: int | None = None, **params: Any) -> Encoder:
        """This encoder with smaller vectors: k dimensions, or codes of some bytes, fitted on texts without labels.

        Codes store the vectors of an encoder that is fine-tuned for similarity; those of another are whitened first.

        Args:
          texts: Texts like those to encode, some thousands; a whitening or code that the encoder has is fitted anew.
          k: Number of dimensions kept, of a whitening.
          bytes: Bytes of the code of a text; `index` compares codes with float queries.
          **params: Parameters of `whiten`; with any of them, vectors are whitened before they are coded.
        """
        if k is None and bytes is None:
            raise InputError("Specify k, for fewer dimensions, or bytes, for codes.")
        raw = self._with_head(self.head.unfitted())
        if k is not None:
            params["n_components"] = k
        fitted = fit(raw._moments_of(texts), bytes=bytes, **params)
        small = raw if fitted.whitening is None else raw.with_whitening(fitted.whitening)
        small = small if fitted.code is None else small.with_code(fitted.code)
        small._source = raw, fitted
        return small

    def save(self, folder: str | Path, *, card: str | None = None, dtype: str | None = None) -> Path:
        """Writes a sentence-transformers folder: encoder, tokenizer, every step of the head, and the prompts.

        `from_pretrained` and sentence-transformers read it; both give the vectors of this encoder.

        Args:
          folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole; not the model's own.
          card: Text of README.md; None writes none.
          dtype: Type of the stored weights; by default this encoder's.
        """
        self.check_folder(folder)
        settings, model = self.settings(), self.model()
        dtype = dtype or np.dtype(model.dtype).name
        with io.whole_folder(folder) as whole:
            write_folder(whole, model, self.tokenizer, self.head, settings=settings, dtype=dtype, card=card)
            self.executor.save_beside(whole)
        return Path(folder)

    def settings(self) -> Settings:
        """What a folder of this encoder says in addition to its modules."""
        names = self.default_prompt_name, self.similarity_fn_name
        return Settings(self.prompts, *names, tuned=self._tuned)

    def check_folder(self, folder: str | Path) -> None:
        """Raises InputError for a folder that `save` may not write to, before anything is computed."""
        if Path(folder).exists() and Path(self.name).exists() and Path(folder).samefile(self.name):
            raise InputError(f"{folder}: is the model's own folder; use a different one.")
        io.check_folder(folder)


def encoder_of(encoding: Mapping[str, Any], *, bare: bool = True, engine: str | None = None) -> Encoder:
    """The encoder of a file that records `Encoder.encoding`, or parts of it; a plain name there is a `bare` pooling.

    By default the engine is one that gives the recorded vectors.
    """
    options: dict[str, Any] = {name: encoding.get(name) for name in ("max_length", "dtype", "tuned")}
    options["engine"] = engine or recorded(encoding)
    return Encoder.from_pretrained(encoding["model"], pooling=encoding.get("pooling") or "auto", bare=bare, **options)
