"""The docstrings of the running Python's standard library as retrieval data: real texts on every machine.

A docstring's first sentence is the query, the rest its document. Sources are parsed, never imported or run.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from jaxwhiten.datasets.retrieval import RetrievalData, from_pairs
from jaxwhiten.errors import DataNotFoundError

# Tests, installed packages, and modules whose docstrings are data or belong to an application.
_SKIPPED = {"test", "tests", "idlelib", "site-packages", "dist-packages", "turtledemo", "pydoc_data", "__pycache__"}
_MAX_BYTES = 2 << 20
_MIN_WORDS = 3
_WORD = re.compile(r"[^\W\d_]{2,}")
# A sentence ends at a blank line, or at a full stop before something that can start the next one.
_END = re.compile(r"""\n\s*\n|(?<=[.!?])["')\]]*\s+(?=["'(`*\[]*[A-Z])""")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|resp|[A-Z])\.$")


def load_pydocs(folder: str | os.PathLike[str] | None = None) -> RetrievalData:
    """Loads docstrings of at least two sentences.

    Args:
      folder: A folder of Python sources; by default the standard library of the running Python.

    Returns:
      The data, in the order of module names and lines. Equal first sentences are one query, with every document that
      follows one of them as gold; equal documents are one document.

    Raises:
      DataNotFoundError: There are no sources, as where the standard library is a zip file.
    """
    root = Path(folder or sysconfig.get_paths()["stdlib"])
    counts: Counter[str] = Counter()
    rows = []
    for path in _sources(root):
        counts["modules"] += 1
        for text in _docstrings(path):
            counts["docstrings"] += 1
            query, document = split_docstring(text)
            if min(len(_WORD.findall(query)), len(_WORD.findall(document))) >= _MIN_WORDS:
                rows.append((query, document, query, document, True))
    if not rows:
        raise DataNotFoundError(
            f"pydocs: no docstrings of two sentences in {root}, where this Python's library should be as .py files."
            " Give a folder of Python sources."
        )
    return from_pairs("pydocs", rows, counts)


def split_docstring(text: str) -> tuple[str, str]:
    """The first sentence and the rest, white space made single spaces; the rest is empty if there is none."""
    for end in _END.finditer(text):
        gap = end.group()
        first = text[: end.start()] + gap.strip()  # a closing quotation mark or bracket belongs to the sentence
        if gap.count("\n") > 1 or not _ABBREVIATION.search(first):
            return " ".join(first.split()), " ".join(text[end.end() :].split())
    return " ".join(text.split()), ""


def _sources(root: Path) -> Iterator[Path]:
    """Python files below a folder, in the order of their names, links to folders not followed."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in _SKIPPED and not name.startswith("config-"))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _docstrings(path: Path) -> Iterator[str]:
    """The docstrings of one file in the order of their lines; none from a file that does not parse."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in strings that are nobody's concern here
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in sorted(_documented(tree), key=lambda node: getattr(node, "lineno", 0)):
        if text := ast.get_docstring(node, clean=False):
            yield inspect.cleandoc(text)


def _documented(block: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The module, classes and functions below a node. Only statements are visited, which is most of the time saved."""
    if isinstance(block, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield block
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(block, name, None) or ():
            if hasattr(child, "body"):
                yield from _documented(child)
