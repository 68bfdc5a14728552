"""A hook of mkdocs: options, names and intervals in code and tables are not broken at their hyphens."""

import re
from typing import Any

_BLOCK = re.compile(r"<pre.*?</pre>", re.DOTALL)
_TEXT = re.compile(r"(<(?:td|strong|code)(?: [^>]*)?>)([^<]+)(?=<)")
_WORD = re.compile(r"[^\s&;]*[-–/][^\s&;]*")
_LONGEST = 36  # characters that fit a phone


def on_page_content(content: str, **_: Any) -> str:
    """The page, with such words in elements of the class `whole`."""

    def whole(word: re.Match[str]) -> str:
        text = word[0]
        return f'<span class="whole">{text}</span>' if 1 < len(text) <= _LONGEST else text

    parts, at = [], 0
    for block in [*_BLOCK.finditer(content), None]:
        end = block.start() if block else len(content)
        parts.append(_TEXT.sub(lambda found: found[1] + _WORD.sub(whole, found[2]), content[at:end]))
        if block:
            parts.append(block[0])
            at = block.end()
    return "".join(parts)
