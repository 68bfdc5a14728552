"""The docstrings of Python's standard library as retrieval data: real texts that need no download.

The first sentence of a docstring is a query, the rest its document. Sources are parsed, never imported.
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

from jaxwhiten.datasets import RetrievalData, from_pairs
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.io import PathLike

# Tests, installed packages, and modules whose docstrings are data or belong to an application.
_SKIPPED = {"test", "tests", "idlelib", "site-packages", "dist-packages", "turtledemo", "pydoc_data", "__pycache__"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_BYTES = 2 << 20
_MIN_WORDS = 3
_WORD = re.compile(r"[^\W\d_]{2,}")
# A sentence ends at a blank line, or at a full stop before a possible start of the next sentence.
_END = re.compile(r"""\n\s*\n|(?<=[.!?])["')\]]*\s+(?=["'(`*\[]*[A-Z])""")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|resp|[A-Z])\.$")


def load_pydocs(folder: PathLike | None = None) -> RetrievalData:
    """Loads docstrings of at least two sentences.

    Args:
      folder: A folder of Python sources; by default the standard library of the running Python.

    Returns:
      The data, in the order of module names and lines. Equal first sentences are merged into one query with all their
      documents as gold; equal documents are merged, too.
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
    """Splits off the first sentence and normalizes white space; the rest is empty for a single sentence."""
    for end in _END.finditer(text):
        gap = end.group()
        first = text[: end.start()] + gap.strip()  # a closing quotation mark or bracket belongs to the sentence
        if gap.count("\n") > 1 or not _ABBREVIATION.search(first):
            return " ".join(first.split()), " ".join(text[end.end() :].split())
    return " ".join(text.split()), ""


def _sources(root: Path) -> Iterator[Path]:
    """Python files below a folder, sorted by name; links to folders are not followed."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in _SKIPPED and not name.startswith("config-"))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a file in the order of their lines; nothing if the file does not parse."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the sources
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    nodes = [node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
        if text := ast.get_docstring(node, clean=False):
            yield inspect.cleandoc(text)
