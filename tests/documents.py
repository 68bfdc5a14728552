"""The code blocks of documents; `python -m tests.documents DIR` writes those of README and guides, for `make types`."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The blocks of these pages start servers; tests/export and tests/serving run them.
ELSEWHERE = {"databases.md", "serve.md"}
# Engines pickle classes of the library, which the checks of types in this process forbid.
ENGINES = {"ray", "apache_beam", "pyspark"}


def name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, language="python"):
    """Code blocks of a page, each with the line it starts on."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)), match.group(1)) for match in found]


def imported(code):
    """The packages a block imports."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.split(".")[0] for name in names}


def alone(code):
    """Whether a block needs a process of its own: those of engines, and one that joins a job before JAX is used."""
    return bool(imported(code) & ENGINES) or "distributed.start" in code


def write(folder):
    """A file for the blocks of each page, which share their names, and one for each block that runs alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        if page.name != "README.md" and page.parent.name != "guides":
            continue
        together = ""
        for line, code in blocks(page):
            stem = "page_" + page.stem.replace("-", "_")
            if alone(code):
                (folder / f"{stem}_{line}.py").write_text("\n" * line + code, encoding="utf-8")
            else:
                together += "\n" * (line - together.count("\n")) + code  # the lines are the page's
                (folder / f"{stem}.py").write_text(together, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
