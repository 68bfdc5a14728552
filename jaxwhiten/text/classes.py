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
    settings = read_object(file) if file.is_file() else {}
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
    before: Any = tokenizer.normalizer
    several = isinstance(before, normalizers.Sequence)
    if before is None:
        parts = []
    elif several:
        parts = list(before)
    else:
        parts = [before]
    if not any(isinstance(part, normalizers.Lowercase) for part in parts):
        result.normalizer = normalizers.Sequence([normalizers.Lowercase(), *parts])
    return result


def is_as_in_file(tokenizer: Any, raw: Json, folder: Path, settings: Fields) -> bool:
    """Whether transformers makes of a folder the tokenizer that is in its `tokenizer.json`, with the contents `raw`.

    False also where that is not known.
    """
    name = _class_name(folder, settings)
    if name not in _CLASSES or settings.keys() & _UNKNOWN:
        return False
    usual, rules = _CLASSES[name]
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
            and all(added[token]["special"] for token in named)
            and _ids_follow_vocabulary(raw)
            and (rules is None or rules(tokens, tokenizer.token_to_id, settings, raw).are_those_of(tokenizer, raw))
        )
    except (KeyError, TypeError, ValueError):  # what no class accepts, either
        return False


def _class_name(folder: Path, settings: Fields) -> str:
    """The name of the class that transformers chooses, without "Fast" at its end; "" for a generic one."""
    file = folder / "config.json"
    config = read_object(file) if file.is_file() else {}
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
        files = [settings, *(read_object(file) for file in [folder / "special_tokens_map.json"] if file.is_file())]
        if (file := folder / "added_tokens.json").is_file():
            for token, number in read_object(file).items():
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


def _ids_follow_vocabulary(raw: Json) -> bool:
    """Whether added tokens have the ids that a class gives them: those of the vocabulary, or the next ones."""
    vocabulary = raw["model"]["vocab"]
    following = len(vocabulary)
    for token in sorted(raw["added_tokens"], key=lambda token: token["id"]):
        number, content = token["id"], token["content"]
        if isinstance(vocabulary, dict):
            known = vocabulary.get(content) == number
        else:
            known = number < len(vocabulary) and vocabulary[number][0] == content
        if not known and (number != following or content in vocabulary):
            return False
        following += not known
    return True


class _Rules(NamedTuple):
    """What a class puts in the place of a file's rules; a post-processor of `...` is the file's."""

    normalizer: Any
    pre_tokenizer: Any
    post_processor: Any
    model: Json

    def are_those_of(self, tokenizer: Any, raw: Json) -> bool:
        model = raw["model"]
        return all((model.get(key) or None) == (value or None) for key, value in self.model.items()) and all(
            part is ... or _state(part) == _state(theirs)
            for part, theirs in (
                (self.normalizer, tokenizer.normalizer),
                (self.pre_tokenizer, tokenizer.pre_tokenizer),
                (self.post_processor, tokenizer.post_processor),
            )
        )


def _state(part: Any) -> Json | None:
    if part is None:
        return None
    state = json.loads(part.__getstate__())
    for step in (state, *state.get("pretokenizers", ())):
        step.pop("trim_offsets", None)
    return state


_BPE: Json = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
}
_BPE |= {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
_WORD_PIECE = {"type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}


def _bert(tokens: Fields, id_of: Callable[[str], int], settings: Fields, raw: Json) -> _Rules:
    from tokenizers import normalizers, pre_tokenizers, processors

    first, last = tokens["cls_token"], tokens["sep_token"]
    normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    template = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, id_of(first)), (last, id_of(last))],
    )
    model = {**_WORD_PIECE, "unk_token": tokens["unk_token"]}
    return _Rules(normalizer, pre_tokenizers.BertPreTokenizer(), template, model)


def _around(tokens: Fields, id_of: Callable[[str], int], prefix: bool = False) -> Any:
    from tokenizers import processors

    (first, last) = ((tokens[key], id_of(tokens[key])) for key in ("cls_token", "sep_token"))
    return processors.RobertaProcessing(last, first, add_prefix_space=prefix)


def _mpnet(tokens: Fields, id_of: Callable[[str], int], settings: Fields, raw: Json) -> _Rules:
    return _bert(tokens, id_of, settings, raw)._replace(post_processor=_around(tokens, id_of))


def _roberta(tokens: Fields, id_of: Callable[[str], int], settings: Fields, raw: Json) -> _Rules:
    from tokenizers import pre_tokenizers

    prefix = settings.get("add_prefix_space", False)
    words = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    return _Rules(None, words, _around(tokens, id_of, prefix), _BPE)


def _sentencepiece(template: tuple[str, str], unknown: int, prefix: bool, raw: Json, **ids: int) -> _Rules:
    from tokenizers import pre_tokenizers, processors

    if raw["normalizer"] is not None and raw["normalizer"]["type"] != "Precompiled":
        raise ValueError
    spaces = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never")
    single, pair = (part.split() for part in template)
    return _Rules(
        ...,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces]),
        processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items())),
        {"type": "Unigram", "unk_id": unknown, "byte_fallback": False},
    )


def _xlm_roberta(tokens: Fields, id_of: Callable[[str], int], settings: Fields, raw: Json) -> _Rules:
    first, last = tokens["bos_token"], tokens["eos_token"]
    template = f"{first} $A {last}", f"{first} $A {last} {last} $B {last}"
    ids = {first: id_of(first), last: id_of(last)}
    return _sentencepiece(template, 3, settings.get("add_prefix_space", True), raw, **ids)


def _t5(tokens: Fields, id_of: Callable[[str], int], settings: Fields, raw: Json) -> _Rules:
    if any(id_of(f"<extra_id_{i}>") is None for i in range(100)):
        raise KeyError
    ids = {"</s>": id_of(tokens["eos_token"])}
    return _sentencepiece(("$A </s>", "$A </s> $B </s>"), 2, True, raw, **ids)


def _qwen2(tokens: Fields, id_of: Callable[[str], int], settings: Fields, raw: Json) -> _Rules:
    from tokenizers import Regex, normalizers, pre_tokenizers

    words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    prefix = bool(settings.get("add_prefix_space"))
    space = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)
    return _Rules(normalizers.NFC(), pre_tokenizers.Sequence([words, space]), ..., _BPE)


def _gemma(tokens: Fields, id_of: Callable[[str], int], settings: Fields, raw: Json) -> _Rules:
    from tokenizers import normalizers, pre_tokenizers

    model = {**_BPE, "unk_token": tokens["unk_token"], "fuse_unk": True, "byte_fallback": True}
    words = pre_tokenizers.Split(" ", "merged_with_previous")
    return _Rules(normalizers.Replace(" ", "▁"), words, ..., model)


def _named(tokens: str) -> dict[str, str]:
    """Tokens by their keys, of a text such as `cls=[CLS] sep=[SEP]`."""
    pairs = (token.split("=") for token in tokens.split())
    return {f"{name}_token": token for name, token in pairs}


_OF_BERT = _named("unk=[UNK] sep=[SEP] pad=[PAD] cls=[CLS] mask=[MASK]")
_OF_ROBERTA = _named("bos=<s> eos=</s> sep=</s> cls=<s> unk=<unk> pad=<pad> mask=<mask>")
# The special tokens of a class by default, and its rules.
_CLASSES: dict[str, tuple[dict[str, str], Callable[..., _Rules] | None]] = {
    "": ({}, None),
    "MPNetTokenizer": ({**_OF_ROBERTA, "unk_token": "[UNK]"}, _mpnet),
    "XLMRobertaTokenizer": (_OF_ROBERTA, _xlm_roberta),
    "T5Tokenizer": (_named("eos=</s> unk=<unk> pad=<pad>"), _t5),
    "Qwen2Tokenizer": (_named("eos=<|endoftext|> pad=<|endoftext|>"), _qwen2),
    "GemmaTokenizer": (_named("unk=<unk> bos=<bos> eos=<eos> pad=<pad> mask=<mask>"), _gemma),
    **{f"{name}Tokenizer": (_OF_BERT, _bert) for name in ("Bert", "DistilBert", "Electra")},
    **{f"{name}Tokenizer": (_OF_ROBERTA, _roberta) for name in ("Roberta", "Longformer", "Bart")},
}
