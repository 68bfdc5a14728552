"""Checks README, documents, docstrings and comments against the list of CONTRIBUTING.md, and guides for their length.

    python docs/language.py           # what `make lint` runs
    python docs/language.py --count   # words per page

Words are counted as `wc -w` counts them: code, table cells and the bars between them included.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDE, README, ALL = 600, 850, 26_000  # words
CODE_FOLDERS = ("jaxwhiten", "train", "eval", "configs")
_CODE = re.compile(r"`[^`\n]*`")
_HIDDEN = re.compile(r"^```.*?^```|<!--.*?-->", re.DOTALL | re.MULTILINE)


def avoided() -> list[tuple[re.Pattern[str], str]]:
    """The patterns of CONTRIBUTING.md to avoid, each with its advice, in the order of the list."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## English")[2]
    found = re.findall(r"^- `([^`]+)`: (.*(?:\n  .*)*)", section, re.MULTILINE)
    return [(re.compile(pattern, re.MULTILINE), " ".join(advice.split())) for pattern, advice in found]


def prose(path: Path) -> str:
    """A page without code, comments and tables, as many lines as before."""
    text = _HIDDEN.sub(lambda match: "\n" * match[0].count("\n"), path.read_text(encoding="utf-8"))
    if path.name == "CONTRIBUTING.md":
        text = text.partition("## English")[0]
    return _CODE.sub("", re.sub(r"^\|.*", "", text, flags=re.MULTILINE))


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, each with the line that it begins on."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(found))):  # of modules, classes, functions and attributes
                yield node.lineno, _CODE.sub("", found)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _CODE.sub("", token.string.lstrip("# "))


def words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def faults() -> Iterator[str]:
    """Every match of a pattern to avoid, with its place, and every page that is too long."""
    texts = [(path, 1, prose(path)) for path in [*pages(), ROOT / "CONTRIBUTING.md"]]
    modules = [path for folder in CODE_FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    texts += [(path, line, text) for path in modules for line, text in docstrings(path)]
    for path, start, text in texts:
        for pattern, advice in avoided():
            for match in pattern.finditer(text):
                line = start + text.count("\n", 0, match.start())
                yield f"{path.relative_to(ROOT)}:{line}: “{' '.join(match[0].split())}”: {advice}"
    counted = {path.relative_to(ROOT).as_posix(): words(path) for path in pages()}
    for name, count in counted.items():
        most = README if name == "README.md" else GUIDE if name.startswith("docs/guides/") else ALL
        if count > most:
            yield f"{name}: {count} words, at most {most}"
    if (total := sum(counted.values())) > ALL:
        yield f"README.md and docs: {total:,} words, at most {ALL:,}"


def main() -> None:
    if "--count" in sys.argv:
        for path in pages():
            print(f"{words(path):6} {path.relative_to(ROOT)}")
        print(f"{sum(map(words, pages())):6} in all")
        return
    found = list(faults())
    print("\n".join(found) or "The documents keep to CONTRIBUTING.md.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
