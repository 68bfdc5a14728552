"""Text to vectors, with the interface of sentence-transformers: a face over the views of a model (`jaxwhiten.views`).

    encoder = Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
    vectors = encoder.encode(["A man plays a guitar.", "Someone makes music."])  # float32 [2, 384]
    encoder.whiten(corpus, k=128).save("small")  # a sentence-transformers folder that gives 128 numbers

Batches are split over all local devices. A vector depends only on its own sentence, not on other sentences, the batch
size or the order.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from jaxwhiten import io
from jaxwhiten.codes import Code, make_code
from jaxwhiten.engines import DEFAULT, FASTEST, engine_for, length_ladder
from jaxwhiten.errors import InputError, check_name, warn
from jaxwhiten.head import AUTO, Head, Settings, Step
from jaxwhiten.head.folder import modules_of, write_folder
from jaxwhiten.metrics import scores
from jaxwhiten.space import Space
from jaxwhiten.terminal import as_html
from jaxwhiten.text import TextList, Texts, as_texts, in_role, prompt_named
from jaxwhiten.types import Float, Float32, IdsLike, Int
from jaxwhiten.vectors import space_of, with_space
from jaxwhiten.views import View, fit
from jaxwhiten.views.core import copied
from jaxwhiten.views.loading import load_view, make_view, reopened
from jaxwhiten.views.stream import BLOCK
from jaxwhiten.views.view import together
from jaxwhiten.whitening import Whitening

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder
    from jaxwhiten.search import Index

FLOAT = "float32"
PRECISIONS = (FLOAT, "int8", "uint8", "binary", "ubinary")


class EncodeOptions(TypedDict, total=False):
    """The options of `Encoder.encode`."""

    pooling: str | None
    prompt_name: str | None
    prompt: str | None
    normalize_embeddings: bool
    truncate_dim: int | None
    precision: str | Code | None
    batch_size: int | None
    show_progress: bool | None
    show_progress_bar: bool | None
    convert_to_numpy: bool
    convert_to_tensor: bool


class Encoder:
    """A BERT-family encoder with its tokenizer and a head: the steps after the hidden states.

    It is read from a local folder or the hub, in the layout of Hugging Face or sentence-transformers, with or without a
    whitening; `from_module` takes a module in memory. Threads may share it. Processes get one that was read from a
    folder by pickle, which holds the place of the folder, and everything but the model.

    >>> Encoder("jaxwhiten-tiny").encode(["A dog runs.", "It rains."]).shape
    (2, 256)

    Args:
      model: Folder or hub id.
      pooling: `"auto"` for all steps that a sentence-transformers folder has after its Transformer, or the mean, with a
        warning, if the folder defines none; or a name of `jaxwhiten.POOLINGS`, which replaces the folder's pooling. A
        whitening or code, which was fitted on the other pooling, is then omitted with a warning.
      bare: Whether a named pooling, here or in `encode`, stands without the folder's steps and default prompt.
      max_length: Maximum sentence length in tokens, special tokens included; by default the folder's.
      dtype: Of matrix products: `"float32"`, the default, or `"bfloat16"`.
      revision: Commit, tag or branch on the hub.
      prompts: Texts to put in front of sentences, by name, in addition to the folder's; they override prompts of the
        same name.
      default_prompt_name: The prompt used if none is named; by default the folder's.
      similarity_fn_name: The similarity of `similarity`: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`; by
        default the folder's, else the cosine.
      truncate_dim: Columns kept of every vector; by default the folder's number, else all.
      device: `"cpu"`, `"gpu"`, `"tpu"`, `"gpu:1"` or a JAX device; by default all local ones of JAX's platform.
      engine: A name of `jaxwhiten.engines.ENGINES`; or `"auto"` for that of the environment variable
        `JAXWHITEN_ENGINE`, by default the fastest one here that takes the folder.
      tuned: Whether the encoder is fine-tuned for similarity, which decides γ; by default as the folder records, else
        judged by its vectors.

    Attributes:
      view: The view of `encode` without options, which knows the head, the space and the engine.

    Raises:
      ModelError: The folder cannot be read; the message names the file or tensor and a remedy.
      MissingDependencyError: The engine is not installed.
    """

    def __init__(
        self,
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
    ):
        view, settings = load_view(
            model,
            pooling=pooling,
            bare=bare,
            max_length=max_length,
            dtype=dtype,
            revision=revision,
            prompts=prompts,
            default_prompt_name=default_prompt_name,
            truncate_dim=truncate_dim,
            device=device,
            engine=engine,
            tuned=tuned,
        )
        if similarity_fn_name is not None:
            settings = dataclasses.replace(settings, similarity_fn_name=similarity_fn_name)
        self._begin(view, settings)

    def _begin(self, view: View, settings: Settings) -> None:
        self.view = view
        self._default_prompt_name = settings.default_prompt_name
        self._similarity = scores.check_similarity(settings.similarity_fn_name or "cosine")
        self._source: View | None = None  # of `shrink`: the view before

    @classmethod
    def _of(cls, view: View, settings: Settings) -> Encoder:
        encoder = object.__new__(cls)
        encoder._begin(view, settings)
        return encoder

    @classmethod
    def from_pretrained(cls, model: str | Path, **options: Any) -> Encoder:
        """Reads an encoder from a local folder or the hub: the constructor, by the name that transformers gives it."""
        return cls(model, **options)

    @classmethod
    def from_module(
        cls,
        module: TransformerEncoder,
        tokenizer_folder: str | Path,
        *,
        default_prompt_name: str | None = None,
        similarity_fn_name: str | None = None,
        **options: Any,
    ) -> Encoder:
        """An encoder of a module in memory.

        Args:
          module: A Flax NNX encoder (`jaxwhiten.models`), whose parameters are copied.
          tokenizer_folder: The folder of its tokenizer, whose maximum length is the default.
          default_prompt_name, similarity_fn_name: As in the constructor.
          **options: `pooling` (the mean by default), `max_length`, `prompts`, `device`, `engine` and `tuned` as in the
            constructor; `name`, that of the model in results and provenance; `head`, instead of a pooling.
        """
        view = make_view(module, tokenizer_folder, default_prompt_name=default_prompt_name, **options)
        return cls._of(view, Settings(default_prompt_name=default_prompt_name, similarity_fn_name=similarity_fn_name))

    def with_view(self, view: View) -> Encoder:
        """An encoder with another default view, such as `encoder.view.then(jaxwhiten.head.Truncate(64))`."""
        if view is self.view:
            return self
        other = copy.copy(self)
        other.view = view
        other._source = None
        return other

    def __repr__(self) -> str:
        view = self.view
        engine = view.core.engine
        return (
            f"{type(self).__name__}({self.name!r}: {view.head.summary}, {self.dimension} dimensions,"
            f" up to {self.max_length} tokens, {engine.dtype} by {engine.name})"
        )

    def _repr_html_(self) -> str:
        engine = self.view.core.engine
        facts = {"head": self.view.head.summary, "dimensions": self.dimension, "tokens": f"up to {self.max_length}"}
        facts["computed in"] = f"{engine.dtype} by {engine.name}"
        return as_html([["encoder", self.name], *([name, str(value)] for name, value in facts.items())])

    # The views.

    @property
    def documents(self) -> View:
        """The view of documents: with their prompt, and with the code at the end, if there is one."""
        return self.view.documents

    @property
    def queries(self) -> View:
        """The view of queries: with their prompt, and without a code."""
        return self.view.queries

    def _view_of(self, pooling: str | None = None, prompt_name: str | None = None, prompt: str | None = None) -> View:
        """The view for options of `encode`."""
        view = self.view
        if pooling is not None:
            view = view.with_pooling(pooling)
        if prompt is None and prompt_name is not None:
            prompt = prompt_named(self.prompts, prompt_name)
        if prompt is not None:
            view = view.with_prompt(prompt)
        return view

    # The model.

    @property
    def name(self) -> str:
        """Name of the model in results and provenance."""
        return self.view.core.name

    @property
    def max_length(self) -> int:
        """Tokens of a sentence, special tokens included, before it is truncated."""
        return self.view.core.max_length

    @property
    def dimension(self) -> int:
        """Width d of the vectors, or bytes of the codes."""
        return self.view.dimension

    @property
    def prompts(self) -> Mapping[str, str]:
        """The texts to put in front of sentences, by name; read-only, as given when the encoder was made or read."""
        return MappingProxyType(self.view.core.prompts)

    @property
    def module(self) -> TransformerEncoder:
        """A copy of the Flax NNX module with parameters of its own, for jit, grad and a training loop of one's own.

        To change it changes no vector of this encoder; `with_module` takes it back. Each access is a new copy.

        >>> encoder = Encoder("jaxwhiten-tiny")
        >>> encoder.module(**encoder.tokenize(["A dog runs.", "It rains."])).hidden_states[-1].shape
        (2, 8, 256)
        """
        return copied(self.view.core.model())

    def tokenize(self, texts: Texts, *, prompt: str | None = None) -> dict[str, Int[np.ndarray, "n length"]]:
        """The arguments of `module` for texts: `input_ids`, and `attention_mask`, 1 for tokens and 0 for padding.

        Both are int32, padded on the right to the longest text, and from there to one of few lengths, so that a
        compiled function is compiled for few shapes. Longer texts are truncated to `max_length`.

        Args:
          texts: Strings in any container of `jaxwhiten.text.as_texts`.
          prompt: The text in front of every text, by default that of `encode`.
        """
        tokens = self._view_of(prompt=prompt).tokens(as_texts(texts))
        lengths, ladder = tokens.lengths, length_ladder(self.max_length)
        length = int(ladder[np.searchsorted(ladder, lengths.max(initial=0))])
        ids = tokens.padded(np.arange(len(lengths)), len(lengths), length, self.view.core.config.pad_token_id)
        return {"input_ids": ids, "attention_mask": (np.arange(length) < lengths[:, None]).astype(np.int32)}

    # Encoders with other heads, which share the weights.

    def with_pooling(self, pooling: str) -> Encoder:
        """An encoder with another pooling, see `from_pretrained`; weights are shared."""
        return self.with_view(self.view.with_pooling(pooling))

    def with_whitening(self, whitening: Whitening, *, normalize: bool = True, where: str = "the whitening") -> Encoder:
        """An encoder whose compiled program ends with a whitening: the full vectors never leave the device.

        Args:
          whitening: A fitted whitening of this encoder's vectors.
          normalize: Whether the whitened vectors are scaled to unit length.
          where: Name of the whitening in messages, such as its file.

        Raises:
          MismatchError: The whitening was fitted on vectors of another encoder, pooling or width.
        """
        return self.with_view(self.view.with_whitening(whitening, normalize=normalize, where=where))

    def with_code(self, code: Code) -> Encoder:
        """An encoder whose compiled program ends with a code: only bytes leave the device.

        Args:
          code: A fitted code of this encoder's vectors (`jaxwhiten.codes`). If the encoder has a code already, the new
            one replaces it. Queries are encoded without it.

        Raises:
          MismatchError: The code was fitted on vectors of another encoder, pooling or width, or for another whitening.
        """
        return self.with_view(self.view.with_code(code))

    def with_module(self, module: TransformerEncoder) -> Encoder:
        """An encoder with other weights, such as those of `module` after training; everything else stays.

        Whether it is fine-tuned for similarity is judged anew.

        >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
        >>> module = encoder.module
        >>> module.embeddings.word.embedding[...] *= 1.01
        >>> changed = encoder.with_module(module)
        >>> changed.view.fingerprint == encoder.view.fingerprint
        False

        Args:
          module: A Flax NNX encoder for this tokenizer, whose parameters are copied. A whitening or code, which was
            fitted on vectors of the weights before, is omitted with a warning.

        Raises:
          ModelError: A step of the head does not fit the module.
        """
        core = self.view.core
        engine = engine_for(core.engine.name, copied(module), self.max_length, core.engine.device, core.engine.dtype)
        head = self.view.head.without_fitted()
        if head is not self.view.head:
            warn(f"{self.name}: the whitening or code, fitted on vectors of other weights, is omitted: refit it.")
        return self.with_view(self.view.over(core.with_engine(engine, module.config)).with_head(head))

    # Vectors.

    def encode(
        self,
        sentences: str | Texts,
        *,
        pooling: str | None = None,
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
    ) -> np.ndarray:
        """Encodes sentences.

        Args:
          sentences: Strings in any container of `jaxwhiten.text.as_texts`, or one; an empty string is `[CLS] [SEP]`.
          pooling: A name, as in `from_pretrained`; default the head's own. One forward pass gives the vectors of
            several by `jaxwhiten.views.at_once`.
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
          `jaxwhiten.Vectors`: float32 [n, d] in the order of the sentences, or codes [n, bytes] if the head has a
          code; they know their `space`. For a single string, one row without the first axis.

        Raises:
          InputError: An item is not a string, a name is unknown, or there are fewer columns. Nothing was encoded.
          NonFiniteError: A vector holds NaN or an infinity; the message names the first such text, `rows` has all.
        """
        if convert_to_tensor or not convert_to_numpy:
            raise InputError("Vectors are NumPy arrays: omit convert_to_tensor, and call torch.from_numpy on them.")
        if show_progress_bar is not None:
            show_progress = show_progress_bar
        view = self._view_of(pooling, prompt_name, prompt)
        cut = truncate_dim, normalize_embeddings
        how: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
        if precision is None:
            return view.cut(*cut)(sentences, **how)
        alone = isinstance(sentences, str)
        texts = as_texts([sentences] if alone else sentences)
        codes = _at_precision(view.uncoded, texts, precision, cut, how)
        return codes[0] if alone else codes

    def encode_query(self, sentences: str | Texts, **options: Unpack[EncodeOptions]) -> np.ndarray:
        """Encodes with the prompt `query`. If there is none, uses no prompt, not even the default.

        A `prompt_name` or `prompt` overrides it.
        """
        return self.encode(sentences, **in_role(self.prompts, "query", options))

    def encode_document(self, sentences: str | Texts, **options: Unpack[EncodeOptions]) -> np.ndarray:
        """`encode` with the first existing prompt of `document`, `passage` and `corpus`, like `encode_query`."""
        return self.encode(sentences, **in_role(self.prompts, "document", options))

    def encode_stream(
        self,
        sentences: Texts,
        *,
        pooling: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        block_size: int = BLOCK,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[np.ndarray]:
        """Encodes any iterable of sentences in bounded memory, with the options of `encode`.

        Args:
          sentences: Read lazily, at most two blocks ahead.
          block_size: Sentences per block; they are sorted by length within a block.

        Yields:
          For each block, in input order, the result of `encode`; InputError at an item that is not a string.
        """
        view = self._view_of(pooling, prompt_name, prompt).cut(truncate_dim, normalize_embeddings)
        for results in together({"": view}, sentences, block_size, batch_size, show_progress):
            yield results[""]

    def similarity(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> Float32[np.ndarray, "n m"]:
        """Similarities of all n vectors to all m, by the encoder's similarity; distances are negated, codes decoded.

        MismatchError if both sides know their spaces, and these differ.
        """
        return scores.similarity(embeddings1, embeddings2, self._similarity)

    def similarity_pairwise(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> Float32[np.ndarray, " n"]:
        """Similarities of n vectors to the vectors with the same index in the other array; see `similarity`."""
        return scores.similarity_pairwise(embeddings1, embeddings2, self._similarity)

    def whiten(self, rows: Texts | Float[np.ndarray, "n d"], k: int | None = None, **params: Any) -> Encoder:
        """Fits a whitening and appends it to this encoder, as `with_whitening` does.

        γ is 0.25 for an encoder that is fine-tuned for similarity, else 1 (`jaxwhiten.whitening.choose_gamma`), and the
        covariance is shrunk.

        Args:
          rows: Sentences, read once and encoded in bounded memory; or vectors of this encoder.
          k: Number of dimensions kept; None for all.
          **params: `beta`, `gamma`, `shrinkage` and other parameters of `jaxwhiten.Whitening`; its `n_components` is k.
        """
        if k is not None:
            params["n_components"] = k
        return self.with_view(fit(self.view, rows, **params))

    def shrink(self, texts: Texts, *, k: int | None = None, bytes: int | None = None, **params: Any) -> Encoder:
        """This encoder with smaller vectors: k dimensions, or codes of some bytes, fitted on texts without labels.

        Codes store the vectors of an encoder that is fine-tuned for similarity; those of another are whitened first.

        Args:
          texts: Texts like those to encode, some thousands; a whitening or code that the encoder has is fitted anew.
          k: Number of dimensions kept, of a whitening.
          bytes: Bytes of the code of a text; `index` compares codes with float queries.
          **params: Parameters of `whiten`; with any of them, vectors are whitened before they are coded.
        """
        if k is not None:
            params["n_components"] = k
        if params.get("n_components") is None and bytes is None:
            raise InputError("Specify `k`, for fewer dimensions, or `bytes`, for codes.")
        view = self.view.with_head(self.view.head.without_fitted())
        small = self.with_view(fit(view, texts, bytes=bytes, **params))
        small._source = view
        return small

    def save(self, folder: str | Path, *, card: str | None = None, dtype: str | None = None) -> Path:
        """Writes a sentence-transformers folder: encoder, tokenizer, every step of the head, and the prompts.

        `from_pretrained` and sentence-transformers read it; both give the vectors of this encoder.

        Args:
          folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole; not the model's own.
          card: Text of README.md; None writes none.
          dtype: Type of the stored weights; by default this encoder's.
        """
        check_saving(self, folder)
        core = self.view.core
        model = core.model()
        dtype = dtype or np.dtype(model.dtype).name
        with io.whole_folder(folder) as whole:
            write_folder(
                whole, model, core.tokenizer, self.view.head, settings=settings_of(self), dtype=dtype, card=card
            )
        return Path(folder)

    def index(self, texts: Texts, *, ids: IdsLike = None, backend: str = "faiss-flat", **options: Any) -> Index:
        """A search index of texts, which knows this encoder: `index.search("a text", k=3)` gives hits.

        If the encoder ends with a code, documents are stored as codes, and queries are compared with them as floats.

        Args:
          texts: The documents, in any container of `jaxwhiten.text.as_texts`.
          ids: Their own ids: strings, or integers from 0. Without them, documents are numbered from 0.
          backend: A name of `jaxwhiten.search.BACKENDS`.
          **options: Arguments of `jaxwhiten.build_index`, such as `bytes`, `metadata` and `rescore`.
        """
        from jaxwhiten.search.text import index_of

        view = self.view
        if self._source is not None and not any(map(options.get, ("codes", "bytes", "whitening"))):
            view = self._source  # the index then needs no folder of this encoder
            options |= {"whitening": self.view.head.whitening, "codes": self.view.code}
        return index_of(view, as_texts(texts, "document"), ids=ids, backend=backend, **options)


def _at_precision(
    view: View, texts: TextList, precision: str | Code, cut: tuple[int | None, bool], how: Any
) -> np.ndarray:
    """The vectors of a view without a code as sentence-transformers' bytes, or as the bytes of a fitted code.

    `cut` are the arguments of `View.cut`, and `how` are those of its call.
    """
    if isinstance(precision, Code):
        return _with_dtype(view.with_code(precision).cut(*cut)(texts, **how), precision)
    check_name("precision", precision, PRECISIONS)
    if precision == FLOAT:
        return view.cut(*cut)(texts, **how)
    by_ranges = precision.endswith("int8")
    if by_ranges and len(texts) < 2:
        raise InputError(
            f"precision={precision!r} needs at least two sentences for calibration: pass more, or a fitted code,"
            f" such as precision=make_code({precision!r}).fit(vectors)."
        )
    vectors = view.cut(*cut)(texts, **how)
    code = make_code(precision).fit(vectors if by_ranges else np.zeros((1, vectors.shape[1])))
    return _with_dtype(code.encode(vectors), code)


def settings_of(encoder: Encoder) -> Settings:
    """What a folder of an encoder says in addition to its modules, such as its prompts and its similarity.

    >>> settings_of(Encoder.from_pretrained("jaxwhiten-tiny")).similarity_fn_name
    'cosine'
    """
    core = encoder.view.core
    default = encoder._default_prompt_name if encoder.view.head.form.prompt else None
    return Settings(dict(core.prompts), default, encoder._similarity, tuned=core.tuned)


def _with_dtype(codes: np.ndarray, code: Code) -> np.ndarray:
    """Codes in the dtype that sentence-transformers gives them."""
    return with_space(np.asarray(codes).view(code.dtype), space_of(codes), code)


def check_saving(encoder: Encoder, folder: str | Path | None = None) -> None:
    """Raises InputError for a folder or a head that `Encoder.save` refuses: before work that ends with it.

    >>> check_saving(Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean"), "small")
    """
    if folder is not None:
        if Path(folder).exists() and Path(encoder.name).exists() and Path(folder).samefile(encoder.name):
            raise InputError(f"{folder}: is the model's own folder; use a different one.")
        io.check_folder(folder)
    core = encoder.view.core
    modules_of(encoder.view.head, core.model())


def encoder_of(space: Space, *, tuned: bool | None = None) -> Encoder:
    """The encoder that made vectors of a space, see `jaxwhiten.views.loading.reopened`."""
    return Encoder._of(*reopened(space, tuned=tuned))


def trained(encoder: Encoder, module: TransformerEncoder, steps: Sequence[Step]) -> Encoder:
    """An encoder in JAX that shares the trained weights of a module, with trained steps of the head."""
    view = encoder.view
    core = view.core.with_engine(engine_for(DEFAULT, module, encoder.max_length), module.config)
    return encoder.with_view(view.over(core).with_head(Head.of(tuple(steps), view.head.form)))
