"""Limits how much a tokenizer's rules can lengthen a text: malicious rules could fill the memory with one sentence."""

from __future__ import annotations

import base64
import json
import math
import unicodedata
from pathlib import Path

from jaxwhiten.errors import ModelError
from jaxwhiten.types import Json

LIMIT = 128  # output characters per input character; BERT's rules make up to 3, Qwen and RoBERTa 11, XLM-R 72
_FACTORS = {"BertNormalizer": 3, "ByteLevel": 11, "Metaspace": 2}


def check_growth(file: Path, raw: Json) -> None:
    """Raises ModelError, naming `file` and a rule, if the tokenizer can make more than `LIMIT` characters from one."""
    from tokenizers import Tokenizer

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
