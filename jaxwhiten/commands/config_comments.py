"""What a config file says of its keys: the comment behind each assignment, or in the lines above it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

_ASSIGNMENT = re.compile(r"config\.(?P<key>[\w.]+) = .*?(  # (?P<comment>.+))?$")
_END = re.compile(r"[)\]}]+  # (?P<comment>.+)$")
_INNER = re.compile(r'[{,] ?"(\w+)":')


def key_comments(module: ModuleType) -> dict[str, str]:
    """The comments of a config file by the key's path, such as `"data.name"`.

    A file that starts from another one (`config = sts.get_config()`) has that one's comments where it has none.
    """
    found: dict[str, str] = {}
    for name, base in vars(module).items():
        if isinstance(base, ModuleType) and hasattr(base, "get_config"):
            comments = key_comments(base)
            # A config that holds others, each under its file's name.
            found |= {f"{name}.{key}": comment for key, comment in comments.items()} | comments
    above, key = "", ""
    for line in map(str.strip, Path(module.__file__ or "").read_text(encoding="utf-8").splitlines()):
        match = _ASSIGNMENT.match(line) or _END.match(line)
        if match:
            key = match.groupdict().get("key", key)
            if comment := match["comment"] or above.removesuffix("."):
                found |= dict.fromkeys([key, *(f"{key}.{inner}" for inner in _INNER.findall(line))], comment)
        above = f"{above} {line[2:]}".strip() if line.startswith("# ") else ""
    return found
