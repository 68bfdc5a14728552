"""Text to token ids, in bulk: the tokenizer of a model folder, with ragged ids as flat arrays."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.errors import InputError, JaxwhitenError, ModelError, check_name
from jaxwhiten.terminal import COUNTS
from jaxwhiten.text.settings import TOKENIZER_SETTINGS, TransformerSettings, tokenizer_settings
from jaxwhiten.text.words import TokenIds, WordTable
from jaxwhiten.types import Fields, Json

_OLDER_FILES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
_COMPANIONS = ("tokenizer.json", TOKENIZER_SETTINGS, "special_tokens_map.json", "added_tokens.json", "merges.txt")
_FILES = (*_COMPANIONS, *_OLDER_FILES)
_ADDED = "added.json"
_LIBRARIES = ("transformers", "tokenizers")
_NO_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
MASK_TOKENS = ("[MASK]", "<mask>")
_LONG = 5_000  # characters of one text that is tokenized in another thread, while Python goes on
# of a text for each token that the model reads, and in all
_CHARACTERS = 64
_MOST_CHARACTERS = 1 << 20
LIMIT = 128  # output characters per input character; BERT's rules make up to 3, Qwen and RoBERTa 11, XLM-R 72
_FACTORS = {"BertNormalizer": 3, "ByteLevel": 11, "Metaspace": 2}


@dataclasses.dataclass(frozen=True)
class TextForm:
    """The form in which a sentence is given to the tokenizer.

    A prompt in front of the sentence (`"query: "`) is tokenized together with it, as in sentence-transformers.
    """

    prompt: str = ""
    lower_case: bool = False  # whether texts are lower-cased before the tokenizer's own rules, except special tokens

    def with_prompt(self, text: str) -> TextForm:
        """This form with the given text in front of the sentence, instead of the current one."""
        return dataclasses.replace(self, prompt=text)

    def adapted(self, tokenizer: Any, max_length: int) -> Any:
        """The tokenizer for texts in this form, prompt included, which truncates to `max_length`."""
        return lower_cased(tokenizer) if self.lower_case else tokenizer


PLAIN = TextForm()

# Prompts are texts that a model expects in front of a sentence, by name. Names and fallbacks are those of
# sentence-transformers; `query` and `document` always exist, and are empty if the folder does not define them.
ROLES: dict[str, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The roles of sentences in a search, each with the names of its prompt in order of preference."""


def prompt_named(prompts: Mapping[str, str], name: str) -> str:
    """The text of a prompt by its name."""
    named = {**dict.fromkeys(ROLES, ""), **prompts}
    check_name("prompt", name, named)
    return named[name]


def prompt_of_role(prompts: Mapping[str, str], role: str) -> str:
    """The prompt of a query or a document; empty if there is none."""
    return next((prompts[name] for name in ROLES[role] if name in prompts), "")


def in_role(prompts: Mapping[str, str], role: str, options: Fields) -> Json:
    """Options of `Encoder.encode` with the prompt of a role, unless they have a `prompt_name` or a `prompt`."""
    specified = any(options.get(name) is not None for name in ("prompt_name", "prompt"))
    if specified:
        return {**options}
    return {**options, "prompt": prompt_of_role(prompts, role)}


def prompt_for(prompts: Mapping[str, str], role: str) -> str | None:
    """The prompt of a role; None, which means the default prompt, if neither queries nor documents have one."""
    apart = any(prompts.get(name) for names in ROLES.values() for name in names)
    if apart:
        return prompt_of_role(prompts, role)
    return None


class BulkTokenizer:
    """A model's tokenizer, truncating to `max_length` tokens on its own side, called on many sentences at once.

    The folder holds `tokenizer.json`, or the older `vocab.txt` and its companions. A token id without one of the
    `model_vocab` rows of the word embedding is an error.
    """

    def __init__(self, folder: Path, max_length: int, model_vocab: int | None = None, *, special_tokens: bool = True):
        self.folder = folder
        self.max_length = max_length
        self._model_vocab = model_vocab
        self._special_tokens = special_tokens
        self._of_forms: dict[TextForm, Any] = {}
        self._settings = tokenizer_settings(folder)
        # Of a static encoder, sentence-transformers reads tokenizer.json alone.
        self._tokenizer, self._without_rows = _load(folder, self._settings if special_tokens else None)
        with _refusing(folder, "is damaged"):
            if not special_tokens:
                self._tokenizer.post_processor = None
            own = self._tokenizer.truncation or {"direction": "right"}
            self._direction = self._settings.get("truncation_side") or own["direction"]
            self._tokenizer.enable_truncation(max_length, direction=self._direction)
            self._tokenizer.no_padding()

    def __call__(self, sentences: Sequence[str], form: TextForm = PLAIN) -> TokenIds:
        """Token ids of the sentences, special tokens included.

        Raises:
          ModelError: The tokenizer fails, or returns ids without a row in the model or too many of them.
        """
        encodings = self._in_form(sentences, form)
        COUNTS[self.max_length, "all"] += len(sentences)
        COUNTS[self.max_length, "cut"] += encodings.cut
        return encodings

    def _in_form(self, sentences: Sequence[str], form: TextForm) -> TokenIds:
        if form.prompt:
            sentences = [form.prompt + sentence for sentence in sentences]
            form = form.with_prompt("")
        if self._table is not None and form == PLAIN:
            return self._table(sentences)
        return self._encoded(self._adapted(form), sentences)

    def _adapted(self, form: TextForm) -> Any:
        if form not in self._of_forms:  # which are few: without prompts
            with _refusing(self.folder, "is damaged"):
                self._of_forms[form] = form.adapted(self._tokenizer, self.max_length)
        return self._of_forms[form]

    def excerpt(self, text: str, form: TextForm = PLAIN) -> str | None:
        """A text, or the part of a long one that has all tokens that it is truncated to.

        That is so if half of the part has them already: then no word that its end cuts is among them. None if no part
        of up to a million characters has them, such as spaces.
        """
        keeps_end = self._direction == "left"
        size = min(_CHARACTERS * self.max_length, _MOST_CHARACTERS)
        while size < len(text):
            parts = [text[-n:] if keeps_end else text[:n] for n in (size // 2, size)]
            encodings = self._in_form(parts, form)
            of_half, of_part = np.split(encodings.flat, [encodings.lengths[0]])
            if len(of_half) == self.max_length and np.array_equal(of_half, of_part):
                return parts[1]
            if size == _MOST_CHARACTERS:
                return None
            size = min(8 * size, _MOST_CHARACTERS)
        return text

    def _encoded(self, tokenizer: Any, sentences: Sequence[str]) -> TokenIds:
        with _refusing(self.folder, "is damaged"):
            if len(sentences) == 1 and len(sentences[0]) < _LONG:  # waking threads would take longer
                rows = [tokenizer.encode(sentences[0])]
            else:
                rows = tokenizer.encode_batch_fast(list(sentences))
            ids = [row.ids for row in rows]
            full = (row for row, aligned in zip(rows, ids, strict=True) if len(aligned) == self.max_length)
            return self._checked(ids, sum(bool(row.overflowing) for row in full))

    @functools.cached_property
    def _table(self) -> WordTable | None:
        """A table of known words, for tokenizers without special tokens, where tokenizing takes most of the time."""
        if self._special_tokens:
            return None
        return WordTable.of(self._tokenizer, functools.partial(self._encoded, self._tokenizer), self.max_length)

    def prompt_length(self, form: TextForm) -> int:
        """The number of tokens of a prompt in front of a sentence, [CLS] included, as in sentence-transformers."""
        if not form.prompt:
            return 0
        with _refusing(self.folder, "is damaged"):
            alone = self._adapted(form.with_prompt("")).encode(form.prompt)
            return len(alone.ids) - sum(alone.special_tokens_mask[-1:])

    def _checked(self, ids: list[list[int]], cut: int = 0) -> TokenIds:
        """The ids as arrays. Beyond the last row of an embedding, JAX would return NaN or another token's row."""
        lengths = list(map(len, ids))
        flat = np.fromiter(chain.from_iterable(ids), np.int32, sum(lengths))  # OverflowError beyond int32
        if (longest := max(lengths, default=0)) > self.max_length:
            raise ValueError(f"a sentence of {longest} tokens, more than {self.max_length}")
        if self._model_vocab is not None and flat.max(initial=0) >= self._model_vocab:
            raise ValueError(f"the token id {flat.max()}; the model's embedding has {self._model_vocab} rows")
        return TokenIds(flat, np.array(lengths, np.int64), cut)

    @property
    def around(self) -> tuple[list[int], list[int]]:
        """The ids of the special tokens before and after a sentence."""
        probe = self._tokenizer.encode("a")
        places = [place for place, special in enumerate(probe.special_tokens_mask) if not special] or [1]
        return probe.ids[: places[0]], probe.ids[places[-1] + 1 :]

    def pairs(self, pairs: list[tuple[str, str]]) -> TokenIds:
        """Token ids of pairs, each plus `model_vocab` times its token type; the longer sentence is truncated first."""
        special = self._tokenizer.num_special_tokens_to_add(True)
        if self.max_length < special + 2:
            raise InputError(f"max_length={self.max_length}: a pair has {special} special tokens.")
        with _refusing(self.folder, "is damaged"):
            encodings = self._tokenizer.encode_batch_fast(pairs)
            token_ids = self._checked([encoding.ids for encoding in encodings])
            types = np.fromiter(chain.from_iterable(x.type_ids for x in encodings), np.int32, len(token_ids.flat))
        return TokenIds(token_ids.flat + types * np.int32(self._model_vocab or 0), token_ids.lengths)

    @property
    def special_ids(self) -> set[int]:
        """Ids of special tokens, including the unknown token."""
        return {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token, or None."""
        ids = (self._tokenizer.token_to_id(token) for token in MASK_TOKENS)
        return next((number for number in ids if number in self.special_ids), None)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id of a token in the tokenizer's files."""
        ids = (i for token, i in self._tokenizer.get_vocab().items() if token not in self._without_rows)
        return max(ids, default=-1) + 1

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, in the order of their ids; empty for ids without a token."""
        return [self._tokenizer.id_to_token(i) or "" for i in range(self.vocab_size)]

    def to_str(self) -> str:
        """All that decides `to_json`, which takes ten times as long for a large vocabulary."""
        return str(self._tokenizer.to_str())

    def to_json(self) -> str:
        """The tokenizer's own serialization, without padding and the length to which it truncates."""
        raw = json.loads(self._tokenizer.to_str())
        usual = self._direction == "right"
        return json.dumps(
            {**raw, "truncation": None if usual else {**raw["truncation"], "max_length": 1}}, sort_keys=True
        )

    def save(self, folder: Path) -> None:
        """Writes the tokenizer's files to a model folder: they truncate to `max_length`, and do not pad."""
        if self._special_tokens:
            copy_tokenizer(self.folder, folder)
            io.write_json(folder / TOKENIZER_SETTINGS, {**self._settings, "model_max_length": self.max_length})
        raw = json.loads(self._tokenizer.to_str())
        raw["added_tokens"] = [token for token in raw["added_tokens"] if token["content"] not in self._without_rows]
        io.write_text(folder / "tokenizer.json", json.dumps(raw, ensure_ascii=False))


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Texts in the block are not the user's, and do not count in `COUNTS`."""
    counts = COUNTS.copy()
    try:
        yield
    finally:
        COUNTS.clear()
        COUNTS.update(counts)


@contextlib.contextmanager
def _refusing(folder: Path, fault: str) -> Iterator[None]:
    """Turns errors of the tokenizers library, including panics of its Rust code, into a ModelError."""
    try:
        yield
    except JaxwhitenError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{folder}: its tokenizer {fault} ({error}).") from error


def _load(folder: Path, settings: Fields | None) -> tuple[Any, set[str]]:
    """The tokenizer of a folder, with settings as transformers makes it from them, without as in `tokenizer.json`.

    And the tokens that transformers adds to those of the files, for which a model need not have rows.
    """
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    with _refusing(folder, "cannot be read"):
        if settings is None and file.is_file():
            text = file.read_text(encoding="utf-8")
            check_growth(file, text)
            return Tokenizer.from_str(text), set()
        if not has_tokenizer(folder):
            raise ModelError(f"{folder}: no tokenizer; expected tokenizer.json or vocab.txt.")
        # Most classes of transformers replace rules of the file. It takes seconds to import, and so is asked once.
        names = [name for name in (*_FILES, "config.json") if (folder / name).is_file()]
        files = {name: io.sha256_once(folder / name) for name in names}
        installed = [io.identity(spec.origin) for spec in map(find_spec, _LIBRARIES) if spec and spec.origin]
        key = io.content_key(files, settings, installed)
        entry = io.cache_dir("tokenizers", key)

        def read(entry: Path) -> tuple[Any, set[str]]:
            return Tokenizer.from_file(str(entry / "tokenizer.json")), set(io.read_json(entry / _ADDED, list[str]))

        def write(entry: Path) -> None:
            tokenizer.save(str(entry / "tokenizer.json"))
            io.write_json(entry / _ADDED, sorted(added))

        if (cached := io.recall(entry, read)) is not None:
            return cached
        known = set[str]()
        if file.is_file():
            raw = check_growth(file, file.read_text(encoding="utf-8"))
            known = {token["content"] for token in raw["added_tokens"]}
        tokenizer = _transformers_tokenizer(folder)
        check_growth(file, tokenizer.to_str())
        added = tokenizer.get_vocab().keys() - tokenizer.get_vocab(with_added_tokens=False).keys() - known
        with contextlib.suppress(OSError, InputError):
            io.keep(entry, write)
        return tokenizer, added


def _transformers_tokenizer(folder: Path) -> Any:
    """The tokenizer that transformers makes of a folder, without its advice to install PyTorch."""
    before = os.environ.get(_NO_ADVICE)
    os.environ[_NO_ADVICE] = "1"
    try:
        from transformers import AutoTokenizer
    finally:
        del os.environ[_NO_ADVICE]
        if before is not None:
            os.environ[_NO_ADVICE] = before
    settings = TransformerSettings.read(folder).tokenizer
    return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, **settings).backend_tokenizer


def lower_cased(tokenizer: Any) -> Any:
    """A tokenizer that lower-cases texts, but no special token in them, as sentence-transformers does it."""
    from tokenizers import Tokenizer, normalizers

    result = Tokenizer.from_str(tokenizer.to_str())
    before: Any = result.normalizer
    is_sequence = isinstance(before, normalizers.Sequence)
    parts = list(before) if is_sequence else [before] * (before is not None)
    if not any(isinstance(part, normalizers.Lowercase) for part in parts):
        result.normalizer = normalizers.Sequence([normalizers.Lowercase(), *parts])
    return result


def check_growth(file: Path, text: str) -> Json:
    """The contents of a tokenizer's file; ModelError if it can make more than `LIMIT` characters from one.

    The error names `file` and a rule.
    """
    from tokenizers import Tokenizer

    raw: Json = json.loads(text)
    # The library applies the rules to added tokens while reading them, so these are removed first.
    bare = raw | {"model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}, "added_tokens": []}
    rules = json.loads(Tokenizer.from_str(json.dumps(bare)).to_str())
    steps = [rules["normalizer"] or {}, rules["pre_tokenizer"] or {}]
    for step in steps:
        steps += step.get("normalizers", []) + step.get("pretokenizers", [])
    repeats = json.dumps(rules["post_processor"]).count('"Sequence"') // 4  # of a text in a template
    if max(1, repeats) * math.prod(map(_factor, steps)) > LIMIT:
        raise ModelError(
            f"{file}: its rules, mainly {json.dumps(max(steps, key=_factor)):.80}, can expand one character to more"
            f" than {LIMIT} and exhaust memory. Use the original publisher's tokenizer, or remove the rule."
        )
    return raw


def _factor(step: Json) -> int:
    """The characters that a step can make from one."""
    match step:
        case {"type": "Replace", "pattern": {"String": pattern}, "content": text} if pattern:
            return max(1, -(-_size(text) // len(pattern)))
        case {"type": "Replace", "content": text} | {"type": "Prepend", "prepend": text}:
            return 1 + _size(text)  # a regular expression may match between any two characters
        case {"type": "Precompiled", "precompiled_charsmap": table}:
            raw = base64.b64decode(table)  # the size of a trie, the trie, and the replacements of characters
            texts = raw[4 + int.from_bytes(raw[:4], "little") :].decode("utf-8", "replace").split("\0")
            return max(1, *map(_size, texts))
    return _FACTORS.get(step.get("type", ""), 1)


def _size(text: str) -> int:
    """The length in characters after full decomposition: Unicode's normal forms do not lengthen that any more."""
    return len(unicodedata.normalize("NFKD", text)) if len(text) <= LIMIT else len(text)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder contains a tokenizer."""
    return any((folder / name).is_file() for name in ("tokenizer.json", *_OLDER_FILES))


def copy_tokenizer(source: io.PathLike, target: io.PathLike) -> None:
    """Copies the tokenizer files of one model folder into another."""
    for name in _FILES:
        if (Path(source) / name).is_file():
            with io.atomic_path(Path(target) / name) as temporary:
                shutil.copyfile(io.below(Path(source), name, ModelError), temporary)
