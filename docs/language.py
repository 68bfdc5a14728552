"""Holds README, documents and docstrings to the list of CONTRIBUTING.md, and guides to their length.

    python docs/language.py           # what `make lint` runs
    python docs/language.py --count   # words per page

A word holds a letter or a digit; code blocks and comments of Markdown are not counted.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDE, README, ALL = 600, 850, 26_000  # words
_HIDDEN = re.compile(r"^```.*?^```|<!--.*?-->", re.DOTALL | re.MULTILINE)


def avoided() -> list[tuple[re.Pattern[str], str]]:
    """The turns that CONTRIBUTING.md lists as `pattern`: advice, in the order of that list."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## English")[2]
    found = re.findall(r"^- `([^`]+)`: (.*(?:\n  .*)*)", section, re.MULTILINE)
    return [(re.compile(pattern, re.MULTILINE), " ".join(advice.split())) for pattern, advice in found]


def prose(path: Path) -> str:
    """A page without code, comments and tables, as many lines as before."""
    text = _HIDDEN.sub(lambda match: "\n" * match[0].count("\n"), path.read_text(encoding="utf-8"))
    if path.name == "CONTRIBUTING.md":
        text = text.partition("## English")[0]
    return re.sub(r"^\|.*|`[^`\n]*`", "", text, flags=re.MULTILINE)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings of a module, each with the line it begins on."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.lineno, re.sub(r"`[^`\n]*`", "", first.value.value)


def words(path: Path) -> int:
    text = _HIDDEN.sub("", path.read_text(encoding="utf-8"))
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def faults() -> Iterator[str]:
    """Every turn that is avoided, with its place, and every page that is too long."""
    texts = [(path, 1, prose(path)) for path in [*pages(), ROOT / "CONTRIBUTING.md"]]
    texts += [
        (path, line, text) for path in sorted((ROOT / "jaxwhiten").rglob("*.py")) for line, text in docstrings(path)
    ]
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
