"""Limits how much a tokenizer's rules can lengthen a text: malicious rules could fill the memory with one sentence."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from pathlib import Path

from jaxwhiten.errors import ModelError
from jaxwhiten.types import Json

LIMIT = 128  # output characters per input character; BERT's rules make up to 3, Qwen and RoBERTa 11, XLM-R 36
_FACTORS = {"BertNormalizer": 3, "ByteLevel": 11, "Metaspace": 2}
_MAY_BE_EMPTY = re.compile(r"[?*|^$(]|\{[0,]|\\[AbBgGkKyYzZ\d]")  # other patterns match at least one character


def check_growth(file: Path, raw: Json) -> None:
    """Raises ModelError, naming `file` and a rule, if the tokenizer can make more than `LIMIT` characters from one."""
    from tokenizers import Tokenizer

    # The library applies the rules to added tokens while reading them, so these are removed first.
    bare = raw | {"model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}, "added_tokens": []}
    rules = json.loads(Tokenizer.from_str(json.dumps(bare)).to_str())
    steps = [raw["model"], rules["normalizer"] or {}, rules["pre_tokenizer"] or {}]
    for step in steps:
        steps += step.get("normalizers", []) + step.get("pretokenizers", [])
    growth = max(1, json.dumps(rules["post_processor"]).count('"Sequence"') // 4)  # how often a template repeats it
    for step in sorted(steps, key=_factor):
        growth *= max(1, _factor(step))
        if growth > LIMIT:
            raise ModelError(
                f"{file}: its rules, mainly {json.dumps(step):.80}, can expand one character to more than {LIMIT} and"
                " exhaust memory. Use the original publisher's tokenizer, or remove the rule."
            )


def _factor(step: Json) -> int:
    """The characters that a step can make from one."""
    match step:
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
            if pattern:
                return -(-_size(content) // len(pattern))
            return 1 + _size(content)
        case {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}:
            return _size(content) + bool(_MAY_BE_EMPTY.search(pattern))
        case {"type": "Prepend", "prepend": content}:
            return 1 + _size(content)
        case {"type": "Precompiled", "precompiled_charsmap": table}:
            raw = base64.b64decode(table)  # the size of a trie, the trie, and the replacements of characters
            return max(map(_size, raw[4 + int.from_bytes(raw[:4], "little") :].decode("utf-8", "replace").split("\0")))
    affixes = (len(step.get(name) or "") for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    return max(_FACTORS.get(step.get("type", ""), 1), max(affixes) // 16)  # a token needs that much memory anyway


def _size(text: str) -> int:
    """The length in characters after full decomposition: Unicode's normal forms do not lengthen that any more."""
    if len(text) <= LIMIT:
        return len(unicodedata.normalize("NFKD", text))
    return len(text)
