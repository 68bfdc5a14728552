"""The header of an index folder, and the files it names: what is read before a backend reads anything."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxwhiten.errors import FormatError
from jaxwhiten.io import check_version, seal, sha256_file

HEADER = "header.json"
KIND = "index"
DOCUMENTS, FITTED = "documents.jsonl", "fitted.safetensors"
# What a `save` that was killed leaves in a new folder.
LEFTOVER = re.compile(r"\.writing\..*|\.header\.json\..*\.tmp|\w+-[0-9a-f]{12}\.\w+")
# Attributes of an index that are entries of its header, and their types.
ATTRIBUTES: Mapping[str, Any] = {
    "backend": str,
    "options": dict,
    "size": int,
    "input_dimension": int,
    "dimension": int,
    "encoding": dict | None,
    "whitening": dict | None,
    "codes": dict | None,
    "rescore": str | None,
    "notes": list,
    "build_seconds": float,
}


def read_header(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of an index folder; FormatError if there is none, it is damaged or of another version."""
    path = Path(folder, HEADER)
    if not path.is_file():
        raise FormatError(f"{path}: no such file; expected an index folder.")
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        kind = header["kind"]
        check_version(path, header)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path}: not a readable index header ({error}). Build the index again.") from error
    if kind != KIND:
        raise FormatError(f"{path}: describes a {kind!r}, not an index.")
    for key, kind_of_value in {**ATTRIBUTES, "normalize": bool, "files": dict}.items():
        if key not in header or not isinstance(header[key], kind_of_value):
            raise FormatError(f"{path}: the entry {key!r} is missing or malformed. Build the index again.")
    if header.get("checksum") != seal(header)["checksum"]:
        raise FormatError(f"{path}: checksum does not match, the file was damaged after it was written.")
    return header


def read_documents(path: Path, size: int) -> list[str]:
    """The texts of an index, one per line and vector."""
    try:
        with open(path, encoding="utf-8") as file:
            texts = [json.loads(line) for line in file]
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not readable as texts ({error}). Build the index again.") from error
    if len(texts) != size or not all(isinstance(text, str) for text in texts):
        raise FormatError(f"{path}: does not hold {size} texts, one per vector. Build the index again.")
    return texts


def verified(folder: Path, entry: Any) -> Path:
    """The path of one file of an index after its size and checksum were compared with the header."""
    try:
        name, size, digest = str(entry["name"]), int(entry["bytes"]), str(entry["sha256"])
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise FormatError(f"{folder / HEADER}: malformed list of files ({error}).") from error
    path = folder / name
    if Path(name).name != name:
        raise FormatError(f"{folder / HEADER}: names a file outside the index: {name!r:.80}.")
    found = None
    with contextlib.suppress(OSError, ValueError):  # ValueError: a name that no file can have
        found = path.stat().st_size if path.is_file() else None
    if found is None:
        raise FormatError(f"{folder / HEADER}: names the file {name!r:.80}, which is missing. Build the index again.")
    if found != size:
        raise FormatError(f"{path}: {found} bytes, the header says {size}: truncated or overwritten.")
    if sha256_file(path) != digest:
        raise FormatError(f"{path}: checksum does not match, the file was damaged after it was written.")
    return path
