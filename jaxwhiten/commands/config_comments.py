"""What a config file says of its keys: the comment behind each assignment, or in the lines above it.

A file that starts from another one (`config = sts.get_config()`) has that one's comments where it has none.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType


def key_comments(module: ModuleType) -> dict[str, str]:
    """The comments of a config file and of those it starts from, by the key's path, such as `"data.name"`."""
    found: dict[str, str] = {}
    for name, base in vars(module).items():
        if isinstance(base, ModuleType) and hasattr(base, "get_config"):
            comments = key_comments(base)
            # A config that holds others, each under its file's name.
            found |= {f"{name}.{key}": comment for key, comment in comments.items()} | comments
    return found | _own_comments(Path(module.__file__ or "").read_text(encoding="utf-8"))


def _own_comments(source: str) -> dict[str, str]:
    """Comments of the assignments to `config.KEY` in a source text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {
        token.start[0]: (token.string.lstrip("# "), not token.line[: token.start[1]].strip())
        for token in tokens
        if token.type == tokenize.COMMENT
    }
    found = {}
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("config.")):
            continue
        key = ast.unparse(node.targets[0]).removeprefix("config.")
        behind, alone = comments.get(node.end_lineno or node.lineno, ("", True))
        if comment := ("" if alone else behind) or _above(node, comments):
            found[key] = comment
        if isinstance(node.value, ast.Call):  # ConfigDict({"dims": ()}): one comment for all its keys
            inner = [item for argument in node.value.args if isinstance(argument, ast.Dict) for item in argument.keys]
            found |= {f"{key}.{ast.literal_eval(item)}": comment for item in inner if item is not None and comment}
    return found


def _above(node: ast.stmt, comments: Mapping[int, tuple[str, bool]]) -> str:
    lines: list[str] = []
    line = node.lineno - 1
    while line in comments and comments[line][1]:
        lines.insert(0, comments[line][0])
        line -= 1
    return " ".join(lines).removesuffix(".")
