"""Runs in docs/runs that are older than what they measure, with the documents that cite them, and runs that none cites.

    python -m eval.stale [--count]

A run is stale if its program, or a room of jaxwhiten/ that the program imports, itself or through others of its kind,
has changed since the commit of the run; where that is unknown, since the commit that put the run here. With --count
only the last line is printed. The exit code is 0 in any case.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from configs import launch
from eval import images, runs, tables
from eval.runs import ROOT, Record

LIBRARY = "jaxwhiten"
PROGRAMS = ("benchmarks", "train", "eval")
PAGES = ("README.md", "docs/*.md", "docs/*/*.md")
_MENTION = re.compile(r"docs/runs/([\w./*-]*[\w*])|\bruns? `([\w./*-]+)`|python -m benchmarks\.(\w+)")
_NAMED = re.compile(r"`([\w./*-]+)`")  # in docs/evidence


@functools.cache
def imported(file: Path) -> frozenset[str]:
    """The modules that a file imports anywhere; of `from a import b` both a and a.b."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


@functools.cache
def public() -> dict[str, str]:
    """The room of each name that can be imported from the library itself."""
    tree = ast.parse((ROOT / LIBRARY / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: node.module.split(".")[1] for node in imports for alias in node.names if "." in node.module}


def file_of(module: str) -> Path | None:
    """The file of a module of this repository."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def rooms(program: str) -> frozenset[str]:
    """The rooms of the library that a program imports, itself or through other programs."""
    seen = set()
    waiting = [program]
    packages = set()
    while waiting:
        module = waiting.pop()
        file = file_of(module)
        if module in seen or file is None:
            continue
        seen.add(module)
        for name in imported(file):
            top, _, rest = name.partition(".")
            package = rest.partition(".")[0]
            if top == LIBRARY and package:
                packages.add(public().get(package, package))
            elif top in PROGRAMS:
                waiting.append(name)
    return frozenset(package for package in packages if (ROOT / LIBRARY / package).is_dir())


@functools.cache
def changed(commit: str) -> frozenset[str] | None:
    """The programs and rooms that have changed since a commit; None if it is not in this repository."""
    files = runs.git("diff", "--name-only", commit, "--", *runs.SOURCES)
    if files is None:
        return None
    parts = [Path(file).with_suffix("").parts for file in files.splitlines()]
    return frozenset(part[1] if part[0] == LIBRARY else ".".join(part) for part in parts if len(part) > 1)


def since(header: Record) -> tuple[float, str]:
    """How many commits have changed what a run measures, and that in words; empty if nothing has changed."""
    commit = header.commit or header.get("committed")
    if header.program is None or file_of(header.program) is None:
        return math.inf, "its program is not here"
    changes = None
    if commit:
        changes = changed(commit)
    if changes is None:
        return math.inf, "its commit is not here"
    parts = tuple(sorted(changes & {header.program, *rooms(header.program)}))
    return commits(commit, parts), ", ".join(parts)


@functools.cache
def commits(commit: str, parts: tuple[str, ...]) -> int:
    """The number of commits since one that changed some programs and rooms."""
    if not parts:
        return 0
    paths = [str(file_of(part)) if "." in part else f"{LIBRARY}/{part}" for part in parts]
    return int(runs.git("rev-list", "--count", f"{commit}..HEAD", "--", *paths) or 0)


def cited() -> dict[str, list[str]]:
    """The pages and pictures that show or name each run."""
    names = runs.names()
    pages: dict[str, list[str]] = {name: [] for name in names}

    def cite(pattern: str, citing: str) -> None:
        for name in names:
            if fnmatch(name, pattern) and citing not in pages[name]:
                pages[name].append(citing)

    for page in sorted(page for pattern in PAGES for page in Path().glob(pattern)):
        for words in (words for parts in tables.places(page) for words in parts):
            for name in runs.expand_braces(words[0]):
                cite(name, str(page))
        text = page.read_text(encoding="utf-8")
        mentioned = ["".join(groups).removesuffix(".jsonl") for groups in _MENTION.findall(text)]
        if page.parent.name == "evidence":
            mentioned += _NAMED.findall(text)
        for name in mentioned:
            cite(name, str(page))
            cite(f"benchmarks/{name}", str(page))
    pictures = {name: [run_name] for name, (run_name, _) in images.IMAGES.items()}
    pictures |= {"quality": list(images.QUALITY.values()), "few-rows": images.FEW_ROWS}
    for picture, run_names in pictures.items():
        for run_name in run_names:
            cite(run_name, str(images.FOLDER / f"{picture}.png"))
    return pages


def report() -> Iterator[str]:
    """A line for each stale run, the oldest first, and for each that nothing cites; the last line counts them."""
    pages = cited()
    stale = []
    for name, citing in pages.items():
        header = runs.Run.load(runs.KEPT / f"{name}.jsonl").header
        count, parts = since(header)
        if parts:
            commit = (header.commit or header.get("committed") or "unknown")[:8] + ", committed" * (not header.commit)
            commits = ""
            if math.isfinite(count):
                commits = f"{count:,.0f} commits to "
            line = f"{name} ({header.program}, {commit}): {commits}{parts}; {', '.join(citing) or 'cited nowhere'}"
            stale.append((-count, line))
    uncited = [name for name, citing in pages.items() if not citing]
    yield from (line for _, line in sorted(stale))
    yield from (f"cited nowhere: {name}" for name in uncited)
    yield f"{len(stale)} of {len(pages)} runs are older than what they measure; {len(uncited)} are cited nowhere."


def main() -> None:
    lines = list(report())
    if "--count" in sys.argv[1:]:
        lines = lines[-1:]
    print("\n".join(lines))


if __name__ == "__main__":
    launch.run_without_config(main)
