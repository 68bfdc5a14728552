"""A hook of mkdocs: formulas become MathML when the pages are built, so that a browser loads nothing for them."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """The page with its formulas, in the form that arithmatex leaves them, as MathML."""

    def formula(match: re.Match[str]) -> str:
        element, text = match.groups()
        return convert(html.unescape(text), display="block" if element == "div" else "inline")

    return _FORMULA.sub(formula, content)
