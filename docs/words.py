"""A hook of mkdocs: options, names and intervals in code and tables are not broken at their hyphens."""

import re
from typing import Any

_BLOCK = re.compile(r"<pre.*?</pre>", re.DOTALL)
_WRAPPED = re.compile(r'<div class="language-(?:sh|bash|python doc-signature) .*?</pre>', re.DOTALL)
_TEXT = re.compile(r"(<(?:td|strong)(?: [^>]*)?>)([^<]+)(?=<)")
_CODE = re.compile(r"(<code(?: [^>]*)?>)([^<]+)(?=<)")
_IN_BLOCK = re.compile(r"(>)([^<]+)(?=<)")
_WORD = re.compile(r"[^\s&;]*[-–/][^\s&;]*(?: to [-+−]?[\d.]+\)?)?|\(?\+?[\d.]+ to [-+−]?[\d.]+\)?")
_NAME = re.compile(r"(?<!\S)[^\s&;]{2,26}(?!\S)|[^\s&;]*[-–/][^\s&;]*")
_SIGN = re.compile(r"-&gt;|[^\s&;]*[-/][^\s&;]*")
_LONGEST = 38  # characters that fit a phone
# Several parameters in one row of a docstring have no default of their own, which is shown as required.
_SEVERAL = re.compile(r"(<code>[^<]+, [^<]+</code>(?:(?!</tr>).)*?)<em>required</em>", re.DOTALL)


def _whole(word: re.Match[str]) -> str:
    text = word[0]
    return f'<span class="whole">{text}</span>' if 1 < len(text) <= _LONGEST else text


def _marked(within: re.Pattern[str], words: re.Pattern[str], text: str) -> str:
    return within.sub(lambda found: found[1] + words.sub(_whole, found[2]), text)


def on_page_content(content: str, **_: Any) -> str:
    """The page, with such words in elements of the class `whole`."""
    content = _SEVERAL.sub(r"\1", content)
    content = _WRAPPED.sub(lambda block: _marked(_IN_BLOCK, _SIGN, block[0]), content)
    parts, at = [], 0
    for block in [*_BLOCK.finditer(content), None]:
        end = block.start() if block else len(content)
        parts.append(_marked(_CODE, _NAME, _marked(_TEXT, _WORD, content[at:end])))
        if block:
            parts.append(block[0])
            at = block.end()
    return "".join(parts)
