"""`report.html`: a run on one self-contained page, without network or other files, for any screen."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from eval.report.table import Table
from jaxwhiten import io

PAGE = "report.html"
_RUN = ("program", "date", "model", "fingerprint", "dimension", "dtype", "seed", "seconds", "encoding")
# The page may show only its own content and load nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def write_page(
    path: io.PathLike, title: str, lead: Sequence[str], sections: Iterable[str], notes: Sequence[str] = ()
) -> Path:
    """Writes a page: title, lines below it, warnings, and sections made by `section`."""
    files = resources.files("eval.report")
    style, script = ((files / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    warnings = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>",
        f"<h1>{html.escape(title)}</h1>",
        *(f'<p class="lead">{html.escape(line)}</p>' for line in lead),
        f'<ul class="warnings">{warnings}</ul>' if warnings else "",
        *sections,
        f"</main>\n<script>\n{script}</script>\n</body>\n</html>\n",
    ]
    io.write_text(path, "\n".join(part for part in parts if part))
    return Path(path)


def section(head: str, *parts: str) -> str:
    """A part of the page under its own head; empty if it has nothing to show."""
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{html.escape(head)}</h2>\n{body}\n</section>" if body else ""


def folded(summary: str, *parts: str) -> str:
    """Parts that a click shows; empty if there are none."""
    body = "\n".join(part for part in parts if part)
    return f"<details>\n<summary>{html.escape(summary)}</summary>\n{body}\n</details>" if body else ""


def tables(*views: Table | None) -> str:
    """Tables one below the other, without those that are None."""
    return "\n".join(view.html() for view in views if view is not None)


def picture(path: io.PathLike, caption: str) -> str:
    """A PNG, embedded in the page."""
    data = base64.b64encode(Path(path).read_bytes()).decode("ascii")
    caption = html.escape(caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f'<figure class="picture">{image}<figcaption>{caption}</figcaption></figure>'


def verbatim(text: str) -> str:
    """Unformatted text in a fixed-width font."""
    return f"<pre>{html.escape(text)}</pre>" if text else ""


def facts(values: Mapping[str, Any]) -> str:
    """Names and values, nested values by their path; None and empty values are omitted."""
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>\n" for name, value in _flat(values) if value
    )
    return f"<dl>\n{rows}</dl>" if rows else ""


def made(header: Any) -> list[str]:
    """How a run was made, from the header of an evaluation: protocol, configuration, machine and versions."""
    values = asdict(header)
    run = {name: values[name] for name in _RUN} | values["machine"]
    parts = {"Protocol": values["protocol"], "Configuration": values["config"], "Run": run, "Versions": header.versions}
    return [section(head, facts(part)) for head, part in parts.items()]


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        name = f"{path}{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            yield name, ", ".join(map(str, value))
        else:
            yield name, "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
