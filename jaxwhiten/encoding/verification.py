"""Checks of an encoder: properties of any encoder's vectors, and agreement with its folder.

The files of the folder are read independently, and applied in NumPy to one sentence's hidden states. What the folder
means as a whole, keys that nobody thought of among them, is what sentence-transformers makes of it, if it is installed.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxwhiten.coded import as_floats
from jaxwhiten.codes import make_code
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.engines import DEFAULT, ENGINES, FASTEST, engine_for
from jaxwhiten.errors import REASON, InputError, MissingDependencyError, check_width, optional, turning
from jaxwhiten.head import Head, Settings, at_pooling, says_head
from jaxwhiten.head.steps import read_optional
from jaxwhiten.head.vectors import Quantise, activated
from jaxwhiten.metrics.scores import cosine_pairs
from jaxwhiten.models import TransformerEncoder, checkpoint, folders
from jaxwhiten.runtime.checks import Finding, Measured, Skipped, finding
from jaxwhiten.shapes import Array, Float, Int
from jaxwhiten.text import Texts, as_texts
from jaxwhiten.text.classes import auto_tokenizer, lower_cased
from jaxwhiten.text.settings import TransformerSettings
from jaxwhiten.typing import AnyArray, Fields
from jaxwhiten.views.core import tokenizer_for

TEXTS = (
    "A man plays a guitar.",
    "Why does my laptop shut down when it gets hot?",
    "Água fria, 北京 and naïve cafés: 1,984 of them – “quoted”.",
    "short",
    "The committee rejected the plan on Tuesday, and meets again when the engineers have told it what went wrong. " * 8,
)
# allowed rounding, relative to the largest entry if that is above 1
_FLOAT32 = 2e-5
_ENGINES = 1e-4
_BFLOAT16 = 1e-2  # one minus the cosine
_SHARED = 0.1  # static encoders may give rare tokens one vector
_BYTES = 0.05  # of codes, whose values may lie on the border of two bytes


@dataclasses.dataclass
class Subject:
    """An encoder in float32, and its folder, whose files are read independently."""

    encoder: Encoder
    folder: Path

    @functools.cached_property
    def vectors(self) -> Float[np.ndarray, "n d"]:
        return self.encoder.encode(TEXTS)

    @functools.cached_property
    def loaded(self) -> list[Encoder]:
        """The encoder as users load it, by default and in JAX, each twice: the second reads what the first has kept."""
        pooling = self.encoder.pooling
        longest = self.encoder.max_length
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # why JAX is the default
            engines = [engine for engine in (FASTEST, DEFAULT) for _ in range(2)]
            return [
                Encoder.from_pretrained(self.folder, engine=engine, pooling=pooling, max_length=longest)
                for engine in engines
            ]

    @functools.cached_property
    def modules(self) -> list[tuple[str, Fields, Path]]:
        """Name, configuration and folder of each module."""
        if not says_head(self.folder):
            raise Skipped("the folder specifies no pooling")
        file = self.folder / "modules.json"
        if file.is_file():
            rows = json.loads(file.read_text("utf-8"))
        else:
            rows = [{"type": "Pooling", "path": "1_Pooling"}]
        places = [(row["type"].rpartition(".")[2], self.folder / row["path"]) for row in rows]
        return [(kind, read_optional(place / "config.json"), place) for kind, place in places]

    @functools.cached_property
    def _tokenizer(self) -> Any:
        folder = self.encoder.tokenizer.folder
        settings = TransformerSettings.read(folder).tokenizer
        tokenizer = auto_tokenizer(folder, **settings)
        if self.encoder.head.form.lower_case:
            tokenizer._tokenizer = lower_cased(tokenizer.backend_tokenizer)
        return tokenizer

    @functools.cached_property
    def peer(self) -> Any:
        library = optional("sentence_transformers", "parity", "The comparison", "sentence-transformers")
        logging: Any = importlib.import_module("transformers.utils.logging")  # without types
        was_enabled = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            return library.SentenceTransformer(str(self.folder), device="cpu", model_kwargs={"dtype": "float32"})
        finally:
            if was_enabled:
                logging.enable_progress_bar()

    def ids(self, text: str) -> list[int]:
        """The token ids of a text from transformers' own tokenizer."""
        tokens = self._tokenizer(
            text,
            truncation=True,
            verbose=False,
            add_special_tokens=self.encoder.model().special_tokens,
            max_length=self.encoder.max_length,
        )
        return tokens["input_ids"]

    def pooled(self, text: str, prompt: str = "") -> Float[np.ndarray, " d"]:
        """The pooled vector, computed from the folder's files."""
        configs = {kind: config for kind, config, _ in self.modules}
        if unread := configs.keys() & {"WeightedLayerPooling", "WordWeights"}:
            raise Skipped(f"{', '.join(unread)} has no independent check")
        ids = self.ids(prompt + text)
        pooling = configs.get("Pooling", {})
        skipped = pooling.get("include_prompt") is False
        lower_case = self.encoder.head.form.lower_case
        if prompt and skipped:
            start = self.encoder.tokenizer.prompt_length(prompt, lower_case)
        else:
            start = 0
        x = np.asarray(_states(self.encoder.model(), jnp.asarray([ids])), np.float64)[0, start:]
        place = np.arange(start, len(ids)) + 1
        vectors = {
            "cls": x[0],
            "max": x.max(0),
            "mean": x.mean(0),
            "mean_sqrt_len_tokens": x.sum(0) / np.sqrt(len(x)),
            "weightedmean": place @ x / place.sum(),
            "lasttoken": x[-1],
        }
        older = [m for m in vectors if any(pooling.get(f"pooling_mode_{m}{end}") for end in ("", "_token", "_tokens"))]
        modes = pooling.get("pooling_mode") or older or ["mean"]
        return np.concatenate([vectors[mode] for mode in ([modes] if isinstance(modes, str) else modes)])

    def expected(self, text: str, prompt: str = "") -> Float[np.ndarray, " k"]:
        """The expected vector, computed from the folder's files: the pooled vector and the modules after it."""
        x = self.pooled(text, prompt)
        for kind, config, place in self.modules:
            if kind == "Normalize":
                x = x / max(float(np.linalg.norm(x)), 1e-12)
            if kind == "Dense":
                tensors = {name: np.asarray(read()) for name, (_, read) in checkpoint.open_weights(place)[0].items()}
                name = str(config.get("activation_function", ".Tanh")).rpartition(".")[2]
                y: Any = jnp.asarray(tensors["linear.weight"] @ x + tensors.get("linear.bias", 0.0))
                y = np.asarray(activated(name, y))
                if config.get("use_residual"):
                    x = y + tensors.get("residual.weight", np.eye(len(y))) @ x
                else:
                    x = y
        return x[: Settings.read(self.folder).truncate_dim]


@nnx.jit
def _states(model: TransformerEncoder, ids: Int[Array, "1 length"]) -> Float[Array, "1 length d"]:
    return model(ids, jnp.ones_like(ids)).hidden_states[-1]


def _apart(actual: AnyArray, expected: AnyArray, what: str, allowed: float = _FLOAT32) -> Measured:
    actual = np.asarray(actual)
    expected = np.asarray(expected)
    check_width("comparison", expected.shape[-1], actual.shape[-1], f"the vectors {what}", error=InputError)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    return float(np.abs(actual - expected).max(initial=0.0)) / scale, allowed, what


def distinct(encoder: Encoder) -> Measured:
    """The fraction of words that have the vector of another word, or a vector that is not finite.

    With damaged weights, positions still distinguish texts of other lengths; words have few lengths.
    """
    words = sorted({word for text in TEXTS for word in text.lower().split()})
    words = list({tuple(encoder.tokenizer([word], encoder.head.form).flat.tolist()): word for word in words}.values())
    x = np.asarray(encoder.without_code().encode(words), np.float64)
    apart = np.abs(x[:, None] - x).max(axis=2)
    np.fill_diagonal(apart, np.inf)
    alone = apart.min(axis=1) > _FLOAT32 * np.abs(x).max()  # False for NaN
    return 1 - float(alone.mean()), _SHARED, f"fraction of {len(words)} words with NaN or the vector of another word"


def tokens(subject: Subject) -> Measured:
    actual = subject.encoder.tokenizer(TEXTS, subject.encoder.head.form.with_prompt(""))
    rows = np.split(actual.flat, actual.starts[1:])
    apart = [text for text, ids in zip(TEXTS, rows, strict=True) if ids.tolist() != list(subject.ids(text))]
    what = "fraction of texts whose IDs are not those of transformers' tokenizer"
    return len(apart) / len(TEXTS), 0.0, what + (f": {apart[0]!r:.40}" if apart else "")


def neighbours(subject: Subject) -> Measured:
    actual = subject.encoder.encode([" ".join(reversed(TEXTS[0].split())), *TEXTS[1:]])
    return _apart(actual[1:], subject.vectors[1:], "one text's words reordered: all others bit-identical", 0.0)


def order(subject: Subject) -> Measured:
    turned = list(reversed(range(len(TEXTS))))
    actual = np.empty_like(subject.vectors)
    actual[turned] = subject.encoder.encode([TEXTS[i] for i in turned], batch_size=2)
    return _apart(actual, subject.vectors, "in reverse order, in batches of two")


def padding_side(subject: Subject) -> Measured:
    view = subject.encoder.view
    actual = []
    for side in ("Left", "Right"):
        with tempfile.TemporaryDirectory() as name:
            padding = {"strategy": {"Fixed": 30}, "direction": side, "pad_to_multiple_of": None, "pad_type_id": 0}
            padding |= {"pad_id": view.core.config.pad_token_id, "pad_token": "[PAD]"}
            settings = json.dumps({**json.loads(view.core.tokenizer.to_json()), "padding": padding})
            (Path(name) / "tokenizer.json").write_text(settings, "utf-8")
            tokenizer = tokenizer_for(view.core.model(), Path(name), view.core.max_length)
            actual.append(view.over(dataclasses.replace(view.core, tokenizer=tokenizer))(TEXTS))
    return _apart(actual, [subject.vectors] * 2, "the tokenizer's own padding, left and right")


def pad_id(subject: Subject) -> Measured:
    view = subject.encoder.view
    ids = subject.ids(TEXTS[0])
    model = nnx.merge(*nnx.split(view.core.model()))
    actual = []
    for pad in (ids[-1], ids[len(ids) // 2]):
        model.config = dataclasses.replace(model.config, pad_token_id=pad)
        engine = engine_for("jax", model, view.core.max_length)
        actual.append(view.over(dataclasses.replace(view.core, engine=engine))(TEXTS))
    return _apart(actual, [subject.vectors] * 2, "padded with the ID of the end token, and with that of a word")


def pooling(subject: Subject) -> Measured:
    view = subject.encoder.view
    texts = TEXTS[1:4]
    head = Head.of(at_pooling(view.head.steps)[0], view.head.form)
    actual = view.with_head(head).with_prompt("")(texts)
    return _apart(
        actual, [subject.pooled(text) for text in texts], "compared with hidden states pooled as the folder specifies"
    )


def dense(subject: Subject) -> Measured:
    after = [kind for kind, *_ in subject.modules if kind in ("Dense", "Normalize")]
    if not after:
        raise Skipped("the folder has no modules after its pooling")
    expected = [subject.expected(text) for text in TEXTS[1:4]]
    return _apart(subject.encoder.encode(TEXTS[1:4], prompt=""), expected, f"{', '.join(after)} of the folder")


def prompts(subject: Subject) -> Measured:
    config = read_optional(subject.folder / "config_sentence_transformers.json")
    named = {name: text for name, text in (config.get("prompts") or {}).items() if text}
    if not named:
        raise Skipped("the folder has no prompts")
    # each makes another length, which is compiled
    default = config.get("default_prompt_name")
    tried = list(named)[:4]
    actual = [subject.encoder.encode(TEXTS[0], prompt_name=name) for name in (None, *tried)]
    expected = [subject.expected(TEXTS[0], named.get(name, "")) for name in (default, *tried)]
    return _apart(actual, expected, f"{', '.join(tried)}, {len(tried)} of {len(named)}; default: {default or 'none'}")


def engines(subject: Subject) -> Measured:
    others = [name for name in ENGINES if name != DEFAULT]
    differences = []
    view = subject.encoder.view
    for name in others:
        with turning(Skipped, f"{name}: {REASON}", InputError, MissingDependencyError):
            engine = engine_for(name, view.core.model(), view.core.max_length, dtype="float32")
            differences.append(view.over(dataclasses.replace(view.core, engine=engine))(TEXTS))
    return _apart(differences, [subject.vectors] * len(differences), f"{', '.join(others)} in float32", _ENGINES)


def _by(encoders: list[Encoder]) -> str:
    return " and ".join(dict.fromkeys(encoder.engine for encoder in encoders))


def as_loaded(subject: Subject) -> Measured:
    actual = [encoder.view.floats(TEXTS) for encoder in subject.loaded]
    what = f"loaded anew, first and from what was kept, by {_by(subject.loaded)}"
    return _apart(actual, [subject.vectors] * len(actual), what, _ENGINES)


def codes(subject: Subject) -> Measured:
    added = make_code("ubinary").fit(np.zeros((1, subject.encoder.dimension)))
    apart = list[float]()
    name = str(added.name)
    for encoder in subject.loaded:
        coded = encoder.then(Quantise.of(added)) if encoder.head.code is None else encoder
        codes_of_texts = coded.encode(TEXTS)
        vectors = coded.view.floats(TEXTS)
        apart.append(float((np.asarray(codes_of_texts) != coded.head.steps[-1](vectors)).mean()))
        name = (coded.head.code or added).name
    what = f"fraction of bytes that are not those of the vectors: {name}, by {_by(subject.loaded)}"
    return max(apart), _BYTES, what


def _least_cosine(subject: Subject, **how: Any) -> float:
    """The smallest cosine of the vectors with those of the folder's encoder loaded in another way."""
    pooling = subject.encoder.pooling
    longest = subject.encoder.max_length
    other = Encoder.from_pretrained(subject.folder, pooling=pooling, max_length=longest, **how)
    # As plain arrays, because vectors of two dtypes are in two spaces.
    expected = as_floats(subject.vectors)
    actual = as_floats(other.view.floats(TEXTS))
    return float(cosine_pairs(actual, expected).min())


def bfloat16(subject: Subject) -> Measured:
    return 1 - _least_cosine(subject, engine=DEFAULT, dtype="bfloat16"), _BFLOAT16, "one minus the smallest cosine"


def marked(subject: Subject) -> str:
    """A text with the tokenizer's special tokens, capital letters and accents, which folders treat differently."""
    special = subject.encoder.tokenizer.special_tokens
    return " ".join(["A Naïve CAFÉ", *(f"{token} Text" for token in special[:8]), "北京"])


def beside(subject: Subject, texts: Sequence[str], required: bool = True) -> Measured:
    try:
        peer = subject.peer
    except MissingDependencyError as error:
        if required:
            raise
        raise Skipped(f"not compared with what the folder means there: {error}") from error
    expected = peer.encode(list(texts), batch_size=1, show_progress_bar=False)  # its padding takes no part
    actual = subject.encoder.encode(list(texts))
    cosine = cosine_pairs(actual, expected).min()
    return _apart(actual, expected, f"smallest cosine of {len(texts)} texts {cosine:.7f}")


CHECKS: dict[str, Callable[[Subject], Measured]] = {
    "texts apart": lambda s: distinct(s.encoder),
    "tokens": tokens,
    "batch = alone": lambda s: _apart(
        [s.encoder.encode(x) for x in TEXTS], s.vectors, "each text alone, all in one batch"
    ),
    "neighbours": neighbours,
    "batch size and order": order,
    "padding side": padding_side,
    "pad id": pad_id,
    "pooling": pooling,
    "dense layers": dense,
    "prompts": prompts,
    "engines": engines,
    "as loaded": as_loaded,
    "codes": codes,
    "bfloat16": bfloat16,
}


def verify(encoder: Encoder, folder: str | Path, *, against: bool = False, texts: Texts = ()) -> Iterator[Finding]:
    """Checks an encoder in float32 against its folder, and against what sentence-transformers makes of the folder.

    The latter is skipped if it is not installed, or the folder is not of its kind, unless `against` demands it, with
    `texts` in addition to those here.
    """
    subject = Subject(encoder.without_code(), folders.resolve_folder(folder))
    checks: dict[str, Callable[[Subject], Measured]] = dict(CHECKS)
    if against or says_head(subject.folder):
        marked_texts = (*TEXTS, marked(subject))
        checks["sentence-transformers, own texts"] = functools.partial(beside, texts=marked_texts, required=against)
    if against and (own_texts := as_texts(texts, "text")):
        checks["sentence-transformers, given texts"] = functools.partial(beside, texts=own_texts)
    for name, check in checks.items():
        yield finding(name, check, subject)
