"""The value that says which vectors a text gets.

    view = Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2").documents
    vectors = view(["A man plays a guitar."])  # float32 [1, 384], which knows view.space

Encoders, indexes, servers, runners and scores hold views. Each method that changes something returns another view of
the same model, which shares its weights and compiled programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.codes import Code, check_whitened
from jaxwhiten.codes.fit import Fit
from jaxwhiten.codes.fit import fit as fit_moments
from jaxwhiten.errors import REASON, InputError, MismatchError, ModelError, NonFiniteError, check_integer, turning
from jaxwhiten.head import AUTO, AfterPrompt, Head, Normalize, Quantize, Step, Truncate, Whiten, canonical
from jaxwhiten.space import Space, check_space
from jaxwhiten.text import ROLES, TextForm, Texts, TokenIds, as_texts, prompt_for, text_blocks, uncounted
from jaxwhiten.types import Float, Json
from jaxwhiten.vectors import with_space
from jaxwhiten.views.core import Core
from jaxwhiten.views.stream import BLOCK, Keep, Output, Run, progress
from jaxwhiten.whitening import Moments, Whitening, is_spread, participation_ratio


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Texts in, vectors of one space out.

    >>> view = Encoder.from_pretrained("jaxwhiten-tiny").documents
    >>> view(["A dog runs.", "It rains."]).shape
    (2, 256)

    Attributes:
      core: Engine, tokenizer and configuration, which all views of a model share.
      head: The steps after the hidden states; the last one may be a code.
      prompt: The text in front of every text; `View.of` has the head's own.
      truncate: Columns kept of every vector; None for all.
      unit: Whether the vectors are scaled to unit length.
    """

    core: Core
    head: Head
    prompt: str = ""
    truncate: int | None = None
    unit: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def of(cls, core: Core, head: Head) -> View:
        """The view with the head's own prompt; `ModelError` if a step does not fit the model."""
        view = cls(core, head, head.form.prompt)
        _ = view.width
        return view

    def __call__(
        self, texts: str | Texts, *, batch_size: int | None = None, show_progress: bool | None = None
    ) -> np.ndarray:
        """The vectors of texts, `jaxwhiten.Vectors` in float32 [n, d], or codes in bytes [n, bytes] after a code.

        Args:
          texts: Strings in any container of `jaxwhiten.text.as_texts`; or one, which gives one row without the first
            axis.
          batch_size: Maximum texts per batch; by default a token budget decides.
          show_progress: True or False; None shows a bar on a terminal if encoding takes over a second.
        """
        alone = isinstance(texts, str)
        sentences = as_texts([texts] if alone else texts)
        vectors = self._run.of_list(sentences, progress(sentences, show_progress), batch_size)[""]
        return self._marked(vectors[0] if alone else vectors)

    def moments(self, texts: Texts, *, show_progress: bool | None = None) -> Moments:
        """Moments of the vectors of texts, read once in bounded memory."""
        total = Moments()
        for results in self._run.in_blocks(text_blocks(texts, BLOCK), progress(texts, show_progress)):
            x = results[""]
            total.update(x if self.code is None else self.code.decode(x))
        total.provenance = self.provenance()
        return total

    def tokens(self, texts: list[str]) -> TokenIds:
        """The token ids of texts, with the prompt."""
        return self.core.tokenizer(texts, self.form)

    def of_tokens(self, texts: list[str], tokens: TokenIds) -> np.ndarray:
        """The vectors of texts with their `tokens`; the texts themselves are for messages."""
        return self._marked(self._run.of_tokens(texts, [tokens])[""])

    def finished(self, vectors: np.ndarray) -> np.ndarray:
        """The vectors of texts, made of those of `unfitted`."""
        return self._marked(self.head.finished(vectors, self.unfitted.head))

    def warm_up(self, longest: int = 64) -> View:
        """Compiles the programs for one text of up to `longest` tokens; returns itself."""
        with uncounted():
            self._run.warm_up(longest)
        return self

    # What the vectors are.

    @functools.cached_property
    def code(self) -> Code | None:
        """The code at the end, or None."""
        return self.head.code

    @functools.cached_property
    def form(self) -> TextForm:
        """How texts are written before they are tokenized; InputError if the head's template takes no prompt."""
        return self.head.form.with_prompt(self.prompt)

    @functools.cached_property
    def width(self) -> int:
        """Columns of the head's vectors, or bytes of its codes; `ModelError` if a step does not fit the model."""
        try:
            return self.head.width(self.core.config)
        except ModelError as error:
            raise ModelError(f"{self.core.name}: {error}") from error

    @property
    def dimension(self) -> int:
        """Columns of the vectors, or bytes of the codes."""
        return self.truncate or self.width

    @property
    def columns(self) -> int:
        """Columns of the vectors, also of those that codes represent."""
        return self.uncoded.dimension

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of weights, configuration, tokenizer and head; equal for equal views wherever they came from."""
        return self.core.fingerprint(self.head)

    @functools.cached_property
    def space(self) -> Space:
        """The space of the vectors; after a code, of the vectors that it represents, with the code's name."""
        head = self.uncoded.head
        code = self.code
        return Space(
            model=self.core.name,
            dtype=self.core.engine.dtype,
            engine=self.core.engine.name,
            fingerprint=self.core.fingerprint(head),
            head=head.fingerprint,
            pooling=head.name,
            max_length=self.core.max_length,
            dimension=self.uncoded.dimension,
            prompt=_shown(head, self.prompt),
            prompts={role: _shown(head, prompt_for(self.core.prompts, role)) for role in ROLES},
            code=None if code is None else f"{code.name}-{code.nbytes}-{self.fingerprint[:8]}",
        )

    @functools.cached_property
    def tuned(self) -> bool:
        """Whether the model is fine-tuned for similarity: as specified or recorded, or by its vectors.

        The vectors are those of the 780 sentences that ship with the package, before a whitening, which spreads the
        vectors of any encoder. The user's own texts would be a worse test: texts of one subject spread out less.
        """
        if self.core.tuned is not None:
            return self.core.tuned
        return is_spread(self.participation_ratio, self.unfitted.width)

    @functools.cached_property
    def participation_ratio(self) -> float:
        """That of the vectors of the shipped sentences, up to a whitening; 0 if one is not finite."""
        view = View.of(self.core, self.unfitted.head)

        def measured() -> str:
            from jaxwhiten.datasets import load_sts

            pairs = load_sts("sts_sample").splits["test"]
            with uncounted(), contextlib.suppress(NonFiniteError):
                vectors = view([*pairs.sentence1, *pairs.sentence2], show_progress=False)
                return str(round(participation_ratio(Moments.of(np.asarray(vectors))), 1))
            return "0"

        engine = self.core.engine
        if engine.cache is None:
            return float(measured())
        texts = f"{engine.dtype} {self.core.max_length}"
        key = io.hashed([self.core.digest.encode(), texts.encode(), *view.head.contents()])
        return float(engine.cache.text(f"ratio-{key}", measured))

    def judged(self) -> View:
        """With the answer whether the model is fine-tuned for similarity recorded, which a folder keeps."""
        return self.over(dataclasses.replace(self.core, tuned=self.tuned))

    def provenance(self) -> Json:
        """What files of these vectors record: their space, and whether the model is fine-tuned for similarity."""
        judged = {"participation_ratio": self.participation_ratio} if self.core.tuned is None else {}
        return {**self.space.record(), "tuned": self.tuned, **judged}

    def check_fitted(self, fitted: Whitening | Code, where: str = "the whitening") -> None:
        """Raises `MismatchError` if a whitening or code was, by its provenance, fitted on vectors of another space.

        Any prompt of this model will do. Another maximum length is a warning.
        """
        expected = dataclasses.replace(fitted.space or Space(), dimension=fitted.n_features_in_)
        view = self
        if expected.prompt in (self.space.prompts or {}).values():
            view = self.with_prompt(str(expected.prompt))
        check_space(where, expected, view.space, "refit it", tolerated=("max_length",))

    # Other views of the model.

    def with_prompt(self, text: str) -> View:
        """With another text in front of every text."""
        if text == self.prompt:
            return self
        return self._with(prompt=text)

    def in_role(self, role: str | None, *, coded: bool = True) -> View:
        """With the model's prompt of a `"query"` or a `"document"`; itself if neither has one, or for no role.

        A code is left out unless `coded`. It is the same view each time, so that its texts share batches of a server.
        """
        view = self if coded else self.uncoded
        return view if role is None else view._of_roles[role]

    @functools.cached_property
    def _of_roles(self) -> dict[str, View]:
        prompts = {role: prompt_for(self.core.prompts, role) for role in ROLES}
        return {role: self if prompt is None else self.with_prompt(prompt) for role, prompt in prompts.items()}

    def with_pooling(self, name: str) -> View:
        """With another pooling, a name of `jaxwhiten.POOLINGS`; whitening and code are omitted, with a warning.

        The later steps of the head stay otherwise, unless the core is `bare`. `"auto"` is the head's own pooling.
        """
        name = canonical(name)
        if name == self.head.name:
            return self
        if name == AUTO:
            raise InputError("Pooling 'auto' cannot be resolved here: specify one, or load the folder with 'auto'.")
        head = Head.named(name.removeprefix(f"{AUTO}:"), self.core)
        if not self.core.bare or name.startswith(AUTO):
            head = self.head.with_pooling(head, self.core.config)
            advice = f"The folder's layers follow its own pooling: omit pooling={name!r}, or load it with bare=True."
            with turning(MismatchError, f"{REASON} {advice}", MismatchError):
                head.width(self.core.config)
        return self.with_head(head)

    def with_head(self, head: Head) -> View:
        """With another head, and its own prompt in place of the present head's own; checked as in `of`."""
        if head is self.head:
            return self
        prompt = self.prompt
        if prompt == self.head.form.prompt:
            prompt = head.form.prompt
        view = self._with(head=head, prompt=prompt)
        _ = view.width
        return view

    def then(self, *steps: Step) -> View:
        """With further steps on vectors, such as `jaxwhiten.head.Truncate(64)`."""
        if self.truncate is None and not self.unit:
            return self.with_head(self.head.then(*steps))
        cut: list[Step] = []
        if self.truncate is not None:
            cut.append(Truncate(self.truncate))
        if self.unit:
            cut.append(Normalize())
        return self._with(truncate=None, unit=False).then(*cut, *steps)

    def with_whitening(self, whitening: Whitening, *, normalize: bool = True, where: str = "the whitening") -> View:
        """Followed by a fitted whitening of these vectors, and unit length if asked.

        MismatchError if it was fitted on vectors of another model, pooling or width; `where` names it in messages.
        """
        self.check_fitted(whitening, where)
        step = Whiten.of(whitening)
        if normalize:
            return self.then(step, Normalize())
        return self.then(step)

    def with_code(self, code: Code, where: str = "the code") -> View:
        """Followed by a fitted code of the vectors of `uncoded`; `where` and MismatchError as in `with_whitening`."""
        view = self.uncoded
        view.check_fitted(code, where)
        check_whitened(code, view.head.whitening)
        return view.then(Quantize.of(code))

    def with_fit(self, fitted: Fit) -> View:
        """Followed by what `jaxwhiten.codes.fit.fit` made of vectors of this view: a whitening, a code, or both."""
        steps: list[Step] = []
        if fitted.whitening is not None:
            steps += [Whiten.of(fitted.whitening), Normalize()]
        if fitted.code is None:
            return self.then(*steps)
        return self.uncoded.then(*steps, Quantize.of(fitted.code))

    def cut(self, truncate: int | None, unit: bool) -> View:
        """With vectors truncated and scaled on the host, which needs no other compiled program."""
        if truncate is None and not unit:
            return self
        if self.code is not None:
            raise InputError("Codes can be neither truncated nor normalized: use precision='float32' for vectors.")
        if truncate is not None and not 1 <= truncate <= self.width:
            raise InputError(f"truncate_dim={truncate}: the vectors have {self.width} dimensions.")
        return self._with(truncate=truncate, unit=unit)

    @functools.cached_property
    def uncoded(self) -> View:
        """Without the final code, as queries are encoded for coded documents; itself if there is none."""
        return self if self.code is None else self.with_head(self.head.without_code())

    @property
    def documents(self) -> View:
        """Of documents: with their prompt."""
        return self.in_role("document")

    @property
    def float_documents(self) -> View:
        """Of documents before they are coded: with their prompt, and without a code."""
        return self.in_role("document", coded=False)

    @property
    def queries(self) -> View:
        """Of queries for the documents: with their prompt, and without a code."""
        return self.in_role("query", coded=False)

    @functools.cached_property
    def unfitted(self) -> View:
        """Up to the whitening, or else the code, for vectors to fit them on; itself if there is neither."""
        return self.with_head(self.head.before_whitening())

    def over(self, core: Core) -> View:
        """The same view of another core."""
        return self._with(core=core)

    # How vectors are computed.

    @functools.cached_property
    def placed(self) -> tuple[Step, ...]:
        """The steps of the head on the devices."""
        steps: tuple[Step, ...] = self.core.engine.place(self.head.steps)
        return steps

    @functools.cached_property
    def output(self) -> Output:
        """The part of this view in a forward pass, which it may share with others."""
        head, form, steps = self.head, self.form, self.placed
        if any(isinstance(step, AfterPrompt) for step in steps):  # its length is an argument of the compiled function
            place = self.core.engine.place(np.int32(self.core.tokenizer.prompt_length(form)))
            steps = tuple(AfterPrompt(s.pooling, place) if isinstance(s, AfterPrompt) else s for s in steps)
        return Output(form, steps, self.width, head.dtype, head.by_segment, self.truncate, self.unit)

    @functools.cached_property
    def _run(self) -> Run:
        return _run_of({"": self})

    def _marked(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors that know their space, or codes that know it of the vectors that they represent."""
        return with_space(vectors, self.uncoded.space, self.code)

    def _with(self, **changes: Any) -> View:
        """A view with other fields; steps on the devices are shared by views of one head and engine."""
        view = dataclasses.replace(self, **changes)
        if view.head is self.head and view.core.engine is self.core.engine:
            view.__dict__["width"] = self.width
            view.__dict__["placed"] = self.placed
        return view


def fit(view: View, rows: Texts | Moments | Float[np.ndarray, "n d"], **how: Any) -> View:
    """A view followed by a whitening of its vectors, a code of them, or both.

    >>> view = Encoder.from_pretrained("jaxwhiten-tiny").view
    >>> fit(view, load_sts("sts_sample").splits["test"].sentence1, bytes=24).dimension
    24

    Args:
      view: The view, whose model knows whether it is fine-tuned for similarity.
      rows: Texts, which get the prompt of documents, read once and encoded in bounded memory; or vectors of the view,
        or their moments.
      **how: `bytes`, `tuned` and the parameters of a whitening, as for `jaxwhiten.codes.fit.fit`.

    Raises:
      MismatchError: The vectors or moments are of another space; of another maximum length is a warning.
    """
    if isinstance(rows, np.ndarray) and rows.dtype.kind not in "OSTU":
        rows = Moments.of(rows)
    if isinstance(rows, Moments):
        known = Space.of(rows.provenance)
        check_space(view.core.name, view.space, known, "omit them", role="query", tolerated=("max_length",))
        rows = dataclasses.replace(rows, provenance={**view.provenance(), **rows.provenance})
    else:
        rows = view.documents.moments(rows)
    return view.with_fit(fit_moments(rows, **how))


def _shown(head: Head, prompt: str | None) -> str:
    """The prompt in the record of a space: None is the head's own."""
    return head.form.prompt if prompt is None else prompt


def together(
    views: Mapping[str, View],
    texts: Texts,
    block_size: int = BLOCK,
    batch_size: int | None = None,
    show_progress: bool | None = None,
    keep: Keep | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """The vectors of several views of one core by name, block by block; views of one form share a forward pass.

    `keep` gets the numbers of texts and their vectors, batch by batch.

    >>> view = Encoder.from_pretrained("jaxwhiten-tiny").view
    >>> [block["mean"].shape for block in together({"mean": view}, ["A dog.", "A cat.", "Rain."], block_size=2)]
    [(2, 256), (1, 256)]
    """
    run = _run_of(views)
    check_integer("block_size", block_size, least=1)
    for results in run.in_blocks(text_blocks(texts, block_size), progress(texts, show_progress), batch_size, keep):
        yield {name: view._marked(results[name]) for name, view in views.items()}


def at_once(
    views: Mapping[str, View], texts: Texts, batch_size: int | None = None, show_progress: bool | None = None
) -> dict[str, np.ndarray]:
    """`together` for texts that are there, as a whole.

    >>> view = Encoder.from_pretrained("jaxwhiten-tiny").view
    >>> views = {name: view.with_pooling(name) for name in ("mean", "cls")}
    >>> {name: vectors.shape for name, vectors in at_once(views, ["A dog runs."]).items()}
    {'mean': (1, 256), 'cls': (1, 256)}
    """
    sentences = as_texts(texts)
    results = _run_of(views).of_list(sentences, progress(sentences, show_progress), batch_size)
    return {name: view._marked(results[name]) for name, view in views.items()}


def _run_of(views: Mapping[str, View]) -> Run:
    core = next(iter(views.values())).core
    return Run(core.tokenizer, core.engine, {name: view.output for name, view in views.items()})
