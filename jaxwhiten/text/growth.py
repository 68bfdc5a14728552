"""How far a tokenizer's rules can lengthen a text: those of a stranger can fill the memory with one sentence."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxwhiten.errors import ModelError

LIMIT = 128  # characters made of one; tokenizers of BERT can make 3, of Qwen and RoBERTa 11, of XLM-R and ALBERT 36
_PARTS = ("normalizers", "pretokenizers", "processors")  # of a sequence
# Most characters that one becomes in the worst case; normal forms become 1 of what is counted decomposed.
_FACTORS = {"BertNormalizer": 3, "ByteLevel": 11, "Metaspace": 2}
_MAY_BE_EMPTY = re.compile(r"[?*|^$(]|\{[0,]|\\[AbBgGkKyYzZ\d]")  # a pattern without these takes a character at least
_AFFIXES = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_TOKEN = 16  # characters of a token that cost no more than the token itself


def check_growth(file: Path, tokenizer: Any) -> None:
    """ModelError, which names `file` and a rule, where a tokenizer can make more than `LIMIT` characters of one.

    Characters are counted fully decomposed, which Unicode's own normal forms do not lengthen any more.
    """
    steps = [*_steps(tokenizer.normalizer), *_steps(tokenizer.pre_tokenizer)]
    steps += [step for step in _steps(tokenizer.post_processor) if step["type"] == "TemplateProcessing"]
    steps += [{name: text} for name in _AFFIXES if (text := getattr(tokenizer.model, name, None))]
    growth = 1
    for step in steps:
        growth *= max(1, _factor(step))
        if growth > LIMIT:
            worst = max(steps, key=_factor)
            raise ModelError(
                f"{file}: its rules, above all {json.dumps(worst):.80}, can make more than {LIMIT} characters of one"
                " and fill the memory. Take the tokenizer of the model's publisher, or remove the rule."
            )


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a part of a tokenizer, as the tokenizers library itself writes them."""
    found = [] if part is None else [json.loads(part.__getstate__())]
    for step in found:
        inner = next((step[name] for name in _PARTS if name in step), None)
        if inner is None:
            yield step
        found += inner or ()


def _factor(step: Mapping[str, Any]) -> int:
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
            made = raw[4 + int.from_bytes(raw[:4], "little") :].decode("utf-8", "replace")
            return max(map(_size, made.split("\0")))
        case {"type": "TemplateProcessing", "single": single, "pair": pair}:
            return max(sum("Sequence" in piece for piece in pieces) // n for n, pieces in ((1, single), (2, pair)))
    if "type" not in step:
        return max(map(len, step.values())) // _TOKEN
    return _FACTORS.get(step["type"], 1)


def _size(text: str) -> int:
    return len(unicodedata.normalize("NFKD", text)) if len(text) <= LIMIT else len(text)
