"""How far a tokenizer's rules can lengthen a text: those of a stranger can fill the memory with one sentence."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

from jaxwhiten.errors import ModelError

LIMIT = 128  # characters made of one; tokenizers of BERT can make 3, of Qwen and RoBERTa 11, of XLM-R and ALBERT 36
# Nothing that the rules are applied to while a tokenizer is read.
_NO_TEXT: dict[str, Any] = {"model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}, "added_tokens": []}
_FACTORS = {"BertNormalizer": 3, "ByteLevel": 11, "Metaspace": 2}
_MAY_BE_EMPTY = re.compile(r"[?*|^$(]|\{[0,]|\\[AbBgGkKyYzZ\d]")  # a pattern without these takes a character at least
_AFFIXES = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_TOKEN = 16  # characters of a token that cost no more than the token itself


def check_growth(file: Path, text: str) -> None:
    """ModelError, which names `file` and a rule, where the tokenizer can make more than `LIMIT` characters of one.

    Characters are counted fully decomposed, which Unicode's own normal forms do not lengthen any more.
    """
    from tokenizers import Tokenizer

    raw = json.loads(text)
    steps = [raw["model"]]

    def keep(step: dict[str, Any]) -> dict[str, Any]:
        steps.append(step)
        return step

    json.loads(Tokenizer.from_str(json.dumps(raw | _NO_TEXT | {"post_processor": None})).to_str(), object_hook=keep)
    growth = max(1, json.dumps(raw.get("post_processor")).count('"Sequence"') // 4)  # how often a template has it
    for step in sorted(steps, key=_factor):
        growth *= max(1, _factor(step))
        if growth > LIMIT:
            raise ModelError(
                f"{file}: its rules, above all {json.dumps(step):.80}, can make more than {LIMIT} characters of one"
                " and fill the memory. Take the tokenizer of the model's publisher, or remove the rule."
            )


def _factor(step: dict[str, Any]) -> int:
    """Characters that a step can make of one."""
    match step:
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
            return -(-_size(content) // len(pattern)) if pattern else 1 + _size(content)
        case {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}:
            return _size(content) + bool(_MAY_BE_EMPTY.search(pattern))
        case {"type": "Prepend", "prepend": content}:
            return 1 + _size(content)
        case {"type": "Precompiled", "precompiled_charsmap": table}:
            raw = base64.b64decode(table)  # the size of a trie, the trie, and what characters are replaced by
            return max(map(_size, raw[4 + int.from_bytes(raw[:4], "little") :].decode("utf-8", "replace").split("\0")))
    return max(_FACTORS.get(step.get("type", ""), 1), *(len(step.get(name) or "") // _TOKEN for name in _AFFIXES))


def _size(text: str) -> int:
    return len(unicodedata.normalize("NFKD", text)) if len(text) <= LIMIT else len(text)
