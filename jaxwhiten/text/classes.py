"""The tokenizer that transformers makes of a folder: most of its classes replace rules of `tokenizer.json`.

A file that has the rules of its class already is read as it is, because transformers takes seconds to import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxwhiten.text.settings import TOKENIZER_SETTINGS, TransformerSettings, check_values, read_object
from jaxwhiten.types import Fields, Json

_NO_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
_LISTS = ("additional_special_tokens", "extra_special_tokens")  # or tokens by name
# Keys of `tokenizer_config.json` whose effect is left to transformers.
_UNKNOWN = {"auto_map", "extra_ids", "fix_mistral_regex", "init_inputs"}
_GENERIC = ("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")  # take the rules of the file
# The class for a model whose files name none. For models of a generic class, no other one is taken.
_BY_MODEL = dict.fromkeys(("bert", "distilbert", "electra", "nomic_bert"), "BertTokenizer")
_BY_MODEL |= dict.fromkeys(("xlm-roberta", "gte", "jina_embeddings_v3"), "XLMRobertaTokenizer")
_BY_MODEL |= {"mpnet": "MPNetTokenizer", "roberta": "RobertaTokenizer", "qwen3": "Qwen2Tokenizer"}
_BY_MODEL |= {"albert": "AlbertTokenizer", "gemma3_text": "GemmaTokenizer", "t5": "T5Tokenizer", "mt5": "T5Tokenizer"}
_BY_MODEL |= dict.fromkeys(("modernbert", "ministral3"), _GENERIC[0])
# How Qwen cuts texts into words.
_WORDS = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
_WORDS += r"|\s+(?!\S)|\s+"


def tokenizer_settings(folder: Path) -> Json:
    """The keys of `tokenizer_config.json`, with those that sentence-transformers' file puts in their place."""
    file = folder / TOKENIZER_SETTINGS
    settings = read_object(file, optional=True)
    given = TransformerSettings.read(folder)
    for where, keys in ((file, settings), (given.file, given.tokenizer)):
        check_values(where, keys, {"split_special_tokens": (False,)})
    return {**settings, **given.tokenizer}


def auto_tokenizer(folder: Path) -> Any:
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


def is_as_in_file(tokenizer: Any, raw: Json, folder: Path, settings: Fields) -> bool:
    """Whether transformers makes of a folder the tokenizer that is in its `tokenizer.json`, with the contents `raw`.

    False also where that is not known.
    """
    kind = _CLASSES.get(_class_name(folder, settings))
    if kind is None or settings.keys() & _UNKNOWN:
        return False
    usual = {key: token for key, token in zip(_KEYS, kind.tokens.split(), strict=False) if token != "-"}
    if raw.get("padding"):
        usual = {"pad_token": raw["padding"]["pad_token"], **usual}
    added = {token["content"]: token for token in raw["added_tokens"]}
    try:
        special = dict(_special_tokens(folder, settings, added))
        tokens = {key: token for key, token in (usual | special).items() if token is not None}
        named = (token for key, token in tokens.items() if not key.startswith(_LISTS))
        return (
            tokens.keys() >= usual.keys()
            and added.keys() >= set(tokens.values())
            and all(tokenizer.token_to_id(token) is not None for token in kind.more)
            and all(added[token]["special"] for token in named)
            and _ids_follow_vocabulary(tokenizer, raw)
            and _has(tokenizer, raw, tokens, kind.rules(settings))
            and (not kind.around or _around(tokenizer) == kind.around.format(**tokens))
        )
    except (KeyError, TypeError, ValueError):  # what no class accepts, either
        return False


def _class_name(folder: Path, settings: Fields) -> str:
    """The name of the class that transformers chooses, without "Fast" at its end; "" for a generic one."""
    config = read_object(folder / "config.json", optional=True)
    of_model = _BY_MODEL.get(str(config.get("model_type")), _GENERIC[0])
    name = settings.get("tokenizer_class") or config.get("tokenizer_class") or of_model
    name = str(of_model if of_model in _GENERIC and config.get("model_type") in _BY_MODEL else name)
    return "" if (name := name.removesuffix("Fast")) in _GENERIC else name


def _special_tokens(folder: Path, settings: Fields, added: Fields) -> Iterator[tuple[str, str | None]]:
    """The special tokens of a folder by their keys; KeyError if `tokenizer.json` has others `added`."""
    if "added_tokens_decoder" in settings:
        files = [settings]
        decoder = {token["content"]: {"id": int(i), **token} for i, token in settings["added_tokens_decoder"].items()}
        if decoder != added:
            raise KeyError
    else:
        files = [settings, read_object(folder / "special_tokens_map.json", optional=True)]
        for token, number in read_object(folder / "added_tokens.json", optional=True).items():
            if added[token]["id"] != number:
                raise KeyError
    for keys in files:
        for key, value in keys.items():
            if key in _LISTS and value:
                values = value.values() if isinstance(value, dict) else value
                yield from ((f"{key} {number}", _content(token)) for number, token in enumerate(values))
            elif key.endswith("_token") and not isinstance(value, bool):
                yield key, _content(value)


def _content(token: Any) -> str | None:
    """The text of a special token, which has settings in some files."""
    return token["content"] if isinstance(token, dict) else token


def _ids_follow_vocabulary(tokenizer: Any, raw: Json) -> bool:
    """Whether added tokens have the ids that a class gives them: those of the vocabulary, or the next ones."""
    id_of = tokenizer.model.token_to_id
    added = sorted((token["id"], token["content"]) for token in raw["added_tokens"])
    new = [number for number, content in added if id_of(content) is None]
    first = len(raw["model"]["vocab"])
    follow = new == list(range(first, first + len(new)))
    return follow and all(id_of(content) in (None, number) for number, content in added)


def _has(tokenizer: Any, raw: Json, tokens: Fields, rules: Json) -> bool:
    """Whether a tokenizer has these rules, as serialized; a tuple lists the types of a rule that is the file's."""
    for name, rule in rules.items():
        if name == "model":
            if any(str(raw[name].get(key) or "") != str(value).format(**tokens) for key, value in rule.items()):
                return False
        elif isinstance(rule, tuple):
            if (raw[name] or {}).get("type") not in rule:
                return False
        elif _state(getattr(tokenizer, name)) != rule:
            return False
    return True


def _state(part: Any) -> Json | None:
    """A rule as serialized, without the part that concerns offsets."""
    if part is None:
        return None

    def of_ids(step: Json) -> Json:
        return {key: value for key, value in step.items() if key != "trim_offsets"}

    state: Json = json.loads(part.__getstate__(), object_hook=of_ids)
    return state


def _around(tokenizer: Any) -> str:
    """The special tokens around a text A, and around a pair A and B; a token of type 1 ends with ":1"."""
    from tokenizers import Tokenizer, models

    if tokenizer.post_processor is None:
        return ""
    text = Tokenizer(models.WordLevel({"a": 0}, "a")).encode("a")
    encodings = (tokenizer.post_processor.process(*texts) for texts in ((text,), (text, text)))
    return " | ".join(
        " ".join(
            (tokenizer.id_to_token(number) if place is None else "AB"[place]) + ":1" * kind
            for number, place, kind in zip(encoding.ids, encoding.sequence_ids, encoding.type_ids, strict=True)
        )
        for encoding in encodings
    )


# The settings of models, as text; "" stands for a setting that is off.
_BPE = {"type": "BPE"} | dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"), "")
_BPE |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), "")
_WORD_PIECE = {"type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": "100"}
_WORD_PIECE |= {"unk_token": "{unk_token}"}


def _bert(settings: Fields) -> Json:
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": settings.get("do_lower_case", True),
    }
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": _WORD_PIECE}


def _bytes(settings: Fields, use_regex: bool = True) -> Json:
    prefix = settings.get("add_prefix_space", False)
    words = {"type": "ByteLevel", "add_prefix_space": prefix, "use_regex": use_regex}
    return {"normalizer": None, "pre_tokenizer": words, "model": _BPE}


def _pieces(settings: Fields, unknown: int = 3) -> Json:
    scheme = "always" if settings.get("add_prefix_space", True) else "never"
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    return {
        "normalizer": (None, "Precompiled"),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, spaces]},
        "model": {"type": "Unigram", "unk_id": unknown, "byte_fallback": ""},
    }


def _split(pattern: Json, behavior: str) -> Json:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def _qwen2(settings: Fields) -> Json:
    rules = _bytes(settings, use_regex=False)
    words = [_split({"Regex": _WORDS}, "Isolated"), rules["pre_tokenizer"]]
    return {**rules, "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": words}}


_GEMMA: Json = {
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": _split({"String": " "}, "MergedWithPrevious"),
    "model": {**_BPE, "unk_token": "{unk_token}", "fuse_unk": "True", "byte_fallback": "True"},
}


class _Class(NamedTuple):
    """What a class of transformers puts in the place of a file's rules."""

    tokens: str = ""  # the special tokens by default, in the order of `_KEYS`
    around: str = ""  # as of `_around`, by their keys; "" if these are the file's
    rules: Callable[[Fields], Json] = lambda settings: {}  # as serialized, from `tokenizer_config.json`
    more: tuple[str, ...] = ()  # further tokens that must be there


_KEYS = [f"{name}_token" for name in ("unk", "pad", "mask", "cls", "sep", "bos", "eos")]
_ROBERTA = "<pad> <mask> <s> </s> <s> </s>"
_SINGLE = "{cls_token} A {sep_token}"
_PAIR = f"{_SINGLE} | {_SINGLE} {{sep_token}} B {{sep_token}}"
_BERT = _Class("[UNK] [PAD] [MASK] [CLS] [SEP]", f"{_SINGLE} | {_SINGLE} B:1 {{sep_token}}:1", _bert)
_OF_ROBERTA = _Class(f"<unk> {_ROBERTA}", _PAIR, _bytes)
_CLASSES = {
    "": _Class(),
    "MPNetTokenizer": _Class(f"[UNK] {_ROBERTA}", _PAIR, _bert),
    "XLMRobertaTokenizer": _Class(f"<unk> {_ROBERTA}", _PAIR.replace("cls", "bos").replace("sep", "eos"), _pieces),
    "T5Tokenizer": _Class(
        "<unk> <pad> - - - - </s>",
        "A {eos_token} | A {eos_token} B {eos_token}",
        lambda settings: _pieces({}, unknown=2),
        tuple(f"<extra_id_{i}>" for i in range(100)),
    ),
    "Qwen2Tokenizer": _Class("- <|endoftext|> - - - - <|endoftext|>", rules=_qwen2),
    "GemmaTokenizer": _Class("<unk> <pad> <mask> - - <bos> <eos>", rules=lambda settings: _GEMMA),
    **{f"{name}Tokenizer": _BERT for name in ("Bert", "DistilBert", "Electra")},
    **{f"{name}Tokenizer": _OF_ROBERTA for name in ("Roberta", "Longformer", "Bart")},
}
