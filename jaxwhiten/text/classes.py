"""What classes of transformers make of a `tokenizer.json`: `tokenizer_config.json` replaces some of its rules."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxwhiten.errors import REASON, ModelError, turning
from jaxwhiten.text.settings import CHANGING, TOKENIZER_SETTINGS, TransformerSettings, check_values, read_object
from jaxwhiten.typing import Fields

Rules = dict[str, Any]

# Classes that make BERT's rules from their settings, and those that set a space before the first word: by default?
_LIKE_BERT = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "MPNetTokenizer"}
_LIKE_BERT |= {"ConvBertTokenizer", "LayoutLMTokenizer", "SqueezeBertTokenizer"}
_PREFIXED = {"RobertaTokenizer": False, "LongformerTokenizer": False, "BartTokenizer": False, "Qwen2Tokenizer": False}
_PREFIXED |= {"XLMRobertaTokenizer": True, "CamembertTokenizer": True}
_DEFAULTS = {"AlbertTokenizer": {"do_lower_case": True, "keep_accents": False}}
_GENERIC = ("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")  # take the rules of the file
# The class for a model whose files name none.
_BY_MODEL = dict.fromkeys(("bert", "distilbert", "electra", "nomic_bert"), "BertTokenizer")
_BY_MODEL |= {"mpnet": "MPNetTokenizer", "roberta": "RobertaTokenizer", "qwen3": "Qwen2Tokenizer"}
_BY_MODEL |= dict.fromkeys(("xlm-roberta", "gte", "jina_embeddings_v3"), "XLMRobertaTokenizer")
_BY_MODEL |= {"albert": "AlbertTokenizer"}
_NO_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
_AS_IN_FILE = ("modernbert", "ministral3")  # models for which transformers takes no class but the generic one


def tokenizer_settings(folder: Path) -> Rules:
    """The keys of `tokenizer_config.json`, with those that sentence-transformers' file puts in their place."""
    file = folder / TOKENIZER_SETTINGS
    settings = read_object(file) if file.is_file() else {}
    given = TransformerSettings.read(folder)
    for where, keys in ((file, settings), (given.file, given.tokenizer)):
        check_values(where, keys, {"split_special_tokens": (False,)})
    return {**settings, **given.tokenizer}


def with_settings(tokenizer: Any, folder: Path, settings: Fields) -> Any:
    """The tokenizer of a `tokenizer.json` as transformers makes it from the settings of its folder."""
    name = _class_name(folder, settings)
    if name in _LIKE_BERT and type(tokenizer.model).__name__ == "WordPiece":
        rules = _like_bert(settings)
    elif name in _PREFIXED:
        prefix = settings.get("add_prefix_space")
        prefix = _PREFIXED[name] if prefix is None else bool(prefix)
        rules = {"pre_tokenizer": _prefixed(_state(tokenizer.pre_tokenizer), prefix)}
    elif name in _GENERIC or _agrees(tokenizer, {**_DEFAULTS.get(name, {}), **settings}):
        return tokenizer
    else:
        return _of_transformers(folder, settings, name)
    same = all(_state(getattr(tokenizer, part)) == rule for part, rule in rules.items())
    if same:
        return tokenizer
    return _replaced(tokenizer, rules)


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


def _class_name(folder: Path, settings: Fields) -> str:
    """The name of the class that transformers chooses, without "Fast" at its end."""
    file = folder / "config.json"
    config = read_object(file) if file.is_file() else {}
    model = config.get("model_type")
    if model in _AS_IN_FILE:
        return _GENERIC[0]
    name = settings.get("tokenizer_class") or config.get("tokenizer_class") or _BY_MODEL.get(str(model), _GENERIC[0])
    return str(name).removesuffix("Fast")


def _state(part: Any) -> Rules | None:
    if part is None:
        return None
    return json.loads(part.__getstate__())


def _like_bert(settings: Fields) -> Rules:
    lower, chinese = (settings.get(key) for key in ("do_lower_case", "tokenize_chinese_chars"))
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True if chinese is None else bool(chinese),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": True if lower is None else bool(lower),
    }
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}}


def _prefixed(rule: Rules | None, prefix: bool) -> Rules | None:
    """A rule that cuts texts into words, with or without a space before the first word."""
    result = copy.deepcopy(rule)
    for step in _steps(result):
        if step["type"] == "ByteLevel":
            step["add_prefix_space"] = prefix
        if step["type"] == "Metaspace":
            step["prepend_scheme"] = "always" if prefix else "never"
    return result


def _steps(rule: Rules | None) -> Iterator[Rules]:
    if rule is not None:
        yield rule
        for step in (*rule.get("pretokenizers", ()), *rule.get("normalizers", ())):
            yield from _steps(step)


def _agrees(tokenizer: Any, settings: Fields) -> bool:
    """Whether the rules of a tokenizer do what settings specify."""
    changed = {key: settings[key] for key in CHANGING if settings.get(key) is not None}
    if not changed:
        return True
    steps = list(_steps(_state(tokenizer.normalizer)))
    words = _state(tokenizer.pre_tokenizer)
    kinds = {step["type"] for step in steps}
    bert = next((step for step in steps if step["type"] == "BertNormalizer"), {})
    does = {
        "do_lower_case": bert.get("lowercase", "Lowercase" in kinds),
        "strip_accents": bert.get("strip_accents", "StripAccents" in kinds),
        "tokenize_chinese_chars": bert.get("handle_chinese_chars", False),
        "keep_accents": "StripAccents" not in kinds,
    }
    prefix = changed.pop("add_prefix_space", None)
    same = prefix is None or _prefixed(words, bool(prefix)) == words
    return same and all(does[key] == value for key, value in changed.items())


def _replaced(tokenizer: Any, rules: Rules) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), **rules}))


def _of_transformers(folder: Path, settings: Fields, name: str) -> Any:
    """The tokenizer that transformers itself makes, which takes a second to import."""
    changed = {key: settings[key] for key in CHANGING if key in settings}
    message = (
        f"{folder / TOKENIZER_SETTINGS}: tokenizer_class is {name!r}, with which transformers cannot apply"
        f" {changed or 'its defaults'} ({REASON})."
    )
    with turning(ModelError, message):
        return auto_tokenizer(folder, **changed).backend_tokenizer


def auto_tokenizer(folder: Path, **settings: Any) -> Any:
    """transformers' own tokenizer of a folder, without its advice to install PyTorch, which has no part in this."""
    before = os.environ.get(_NO_ADVICE)
    os.environ[_NO_ADVICE] = "1"
    try:
        from transformers import AutoTokenizer
    finally:
        del os.environ[_NO_ADVICE]
        if before is not None:
            os.environ[_NO_ADVICE] = before
    return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, **settings)
