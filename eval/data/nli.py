"""Natural language inference rows: AllNLI, SNLI, MultiNLI and other files with the same columns.

References:
  Bowman et al. 2015 (SNLI); Williams et al. 2018 (MultiNLI); Kaushik et al. 2020 (counterfactual SNLI).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int8

from eval.data.lines import read_columns, read_lines
from eval.data.protocol import data_folder
from eval.data.remote import fetch
from jaxwhiten.datasets import NLI_LABELS, Table, read_header, split_name
from jaxwhiten.errors import DataError, DataNotFoundError, InputError, check_name
from jaxwhiten.io import PathLike, cache_dir, content_key

URL = "https://sbert.net/datasets/AllNLI.tsv.gz"
URL_VARIABLE = "JAXWHITEN_ALLNLI_URL"  # for mirrors
_TWO_CLASSES = -1
_NO_CLASS = -2
_UNKNOWN = -3
# Integer labels follow the order of the hub's data sets, which is the order of NLI_LABELS.
_CODES: dict[Any, int] = {name: code for code, name in enumerate(NLI_LABELS)}
_CODES |= dict.fromkeys(("not_entailment", "non_entailment", "not entailment", "non-entailment"), _TWO_CLASSES)
_CODES |= {name.capitalize(): code for name, code in _CODES.items()}
_CODES |= {code: code for code in range(3)} | {str(code): code for code in range(3)}
_CODES |= dict.fromkeys(("-", "-1", "", -1), _NO_CLASS)
_PREMISE = ("premise", "sentence1")
_HYPOTHESIS = ("hypothesis", "sentence2")
_LABEL = ("label", "gold_label")
_OFFICIAL = re.compile(r"(allnli|snli|multinli)", re.IGNORECASE)
_MAX_DEPTH = 3
_PREFERRED_FORMATS = (".tsv", ".jsonl", ".txt", ".csv", ".parquet")


@dataclass(frozen=True)
class NLISource:
    """One file of rows, by its name in `load_nli`: the number of rows kept, and of rows dropped for each reason."""

    name: str
    path: str
    rows: int
    dropped: Mapping[str, int]


@dataclass(frozen=True)
class NLIRows:
    """Premises and hypotheses with their labels, source after source."""

    premise: list[str]
    hypothesis: list[str]
    # 0 entailment, 1 neutral, 2 contradiction; -1 for rows labelled only "not entailment" (`two_way="keep"`).
    label: Int8[np.ndarray, " n"]
    sources: tuple[NLISource, ...]  # the files read, with numbers of rows kept and dropped

    def __len__(self) -> int:
        return len(self.premise)

    @property
    def sentences(self) -> list[str]:
        """All premises, then all hypotheses."""
        return [*self.premise, *self.hypothesis]

    def summary(self) -> str:
        """One line per source: rows kept, rows dropped, and the reasons."""
        lines = []
        for source in self.sources:
            line = f"{source.name}: {source.rows} rows"
            if source.dropped:
                line += f" (dropped: {', '.join(f'{count} {reason}' for reason, count in source.dropped.items())})"
            lines.append(line)
        return "\n".join(lines)


def _candidates(data_dir: Path) -> dict[str, Path]:
    """Files below a folder that may hold NLI rows, by source name; if there are several formats, the preferred one."""
    subfolders = (data_dir / name for name in ("nli", "NLI", "downstream/nli", "downstream/NLI"))
    root = next((folder for folder in subfolders if folder.is_dir()), data_dir)
    by_name: dict[str, list[Path]] = {}
    for folder, folders, files in os.walk(root):
        relative = Path(folder).relative_to(root)
        folders[:] = sorted(n for n in folders if len(relative.parts) < _MAX_DEPTH and not n.startswith((".", "__")))
        for file in sorted(files):
            stem, suffix = split_name(Path(file))
            name = (relative / stem).as_posix()
            if suffix not in _PREFERRED_FORMATS or file.startswith(".") or "nli" not in f"{root.name}/{name}".lower():
                continue
            if suffix == ".txt" and not _OFFICIAL.match(stem):
                continue  # licenses, readmes, lists of lines
            by_name.setdefault(name, []).append(Path(folder, file))
    return {
        name: min(paths, key=lambda path: (_PREFERRED_FORMATS.index(split_name(path)[1]), path.name))
        for name, paths in sorted(by_name.items())
    }


def _columns(path: Path) -> dict[str, str] | None:
    """The columns to read, or None for a table that holds no NLI rows."""
    header = read_header(path)
    columns: dict[str, str] = {}
    for field, names in (("premise", _PREMISE), ("hypothesis", _HYPOTHESIS), ("label", _LABEL)):
        if name := next((name for name in names if name in header), None):
            columns[field] = name
    if {"premise", "hypothesis", "label"} <= columns.keys():
        return columns
    return None


def _contained(names: Sequence[str]) -> dict[str, str]:
    """Sources whose rows another source contains, each with the name of that source."""
    result = {}
    allnli = next((name for name in names if name.rpartition("/")[2].lower() == "allnli"), None)
    for name in names:
        folder, slash, stem = name.rpartition("/")
        combined = f"{folder}{slash}all_combined_{stem.removeprefix('original_')}"
        if stem.startswith("original_") and combined in names:
            result[name] = combined
        elif allnli and name != allnli and re.match(r"(snli|multinli)", name.rpartition("/")[2], re.IGNORECASE):
            result[name] = allnli
    return result


def _choose(names: Sequence[str], sources: Sequence[str] | None) -> list[str]:
    """The sources to read."""
    if sources is None:
        contained = _contained(names)
        return [name for name in names if name not in contained]
    for name in sources:
        check_name("NLI source", name, names)
    for name, container in _contained(sources).items():
        raise InputError(f"NLI sources {name!r} and {container!r}: the second contains the first, so specify only one.")
    return list(dict.fromkeys(sources))


def _overlap(path: Path) -> np.ndarray:
    """Line numbers (from 1) of a file that its `X.overlap_lines.txt` marks as overlapping an evaluation set."""
    listed = path.with_name(f"{split_name(path)[0]}.overlap_lines.txt")
    if not listed.is_file():
        return np.zeros(0, np.int64)
    lines = read_lines(listed)
    for line, text in enumerate(lines, 1):
        if not re.fullmatch(r"\s*[0-9]{1,12}\s*", text):
            raise DataError(f"{listed}, line {line}: {text[:40]!r} is not a line number.")
    return np.array([int(text) + 1 for text in lines], dtype=np.int64)


def _label_codes(table: Table, skip_bad_rows: bool) -> Int8[np.ndarray, " n"]:
    """Numbers in `NLI_LABELS`; -1 for "not entailment", -2 for rows without an agreed label, -3 for unknown labels."""
    labels = table["label"]
    codes = [_UNKNOWN if isinstance(label, bool) else _CODES.get(label, _UNKNOWN) for label in labels]
    if not skip_bad_rows and _UNKNOWN in codes:
        row = codes.index(_UNKNOWN)
        raise DataError(f"{table.where(row)}: unknown label {str(labels[row])[:40]!r}; known: {', '.join(NLI_LABELS)}.")
    return np.array(codes, np.int8)


def _read_source(
    name: str, path: Path, columns: Mapping[str, str], rules: Mapping[str, Any]
) -> tuple[NLISource, list[str], list[str], np.ndarray]:
    """Reads a file: its summary, and the premises, hypotheses and labels that pass the rules (see `load_nli`)."""
    skip_bad_rows = rules.get("skip_bad_rows", False)
    table = read_columns(path, columns, skip_bad_rows)
    codes = _label_codes(table, skip_bad_rows)
    premise = table["premise"]
    hypothesis = table["hypothesis"]
    empty = [not str(p).strip() or not str(h).strip() for p, h in zip(premise, hypothesis, strict=True)]
    # A row that several reasons apply to is counted for the first.
    reasons: dict[str, np.ndarray] = {}
    reasons["unknown label"] = codes == _UNKNOWN
    reasons["without an agreed label"] = codes == _NO_CLASS
    if rules.get("two_way") != "keep":
        reasons["with a two-way label"] = codes == _TWO_CLASSES
    reasons["empty sentence"] = np.array(empty, dtype=bool)
    if rules.get("exclude_overlap"):
        reasons["overlapping an evaluation set"] = np.isin(table.lines, _overlap(path))
    keep = np.ones(len(codes), dtype=bool)
    dropped = {}
    if table.skipped:
        dropped = {"invalid row": table.skipped}
    for reason, mask in reasons.items():
        if count := int(np.count_nonzero(mask & keep)):
            dropped[reason] = count
        keep &= ~mask
    rows = np.flatnonzero(keep).tolist()
    texts = ([str(column[i]) for i in rows] for column in (premise, hypothesis))
    return NLISource(name, str(path), len(rows), dropped), *texts, np.maximum(codes[keep], np.int8(_TWO_CLASSES))


def read_nli(folder: PathLike, sources: Sequence[str] | None = None, **rules: Any) -> NLIRows | None:
    """Reads the NLI files of a local folder, or None if it holds none; arguments as `load_nli`."""
    tables: dict[str, tuple[Path, dict[str, str]]] = {}
    for name, path in _candidates(Path(folder)).items():
        if columns := _columns(path):
            tables[name] = path, columns
        elif _OFFICIAL.match(path.name):
            raise DataError(f"{path}, line 1: no columns sentence1, sentence2 and label (or gold_label) in the header.")
    if not tables:
        return None
    names = _choose(list(tables), sources)
    read, premises, hypotheses, labels = zip(*(_read_source(name, *tables[name], rules) for name in names), strict=True)
    return NLIRows(
        premise=list(chain.from_iterable(premises)),
        hypothesis=list(chain.from_iterable(hypotheses)),
        label=np.concatenate(labels),
        sources=read,
    )


def load_nli(
    data_dir: PathLike | None = None,
    *,
    exclude_overlap: bool = False,
    sources: str | Sequence[str] | None = None,
    two_way: Literal["drop", "keep"] = "drop",
    skip_bad_rows: bool = False,
) -> NLIRows:
    """Loads NLI rows from every recognized file of a folder, and reports which files were read.

    Recognized files are `AllNLI.tsv`, SNLI and MultiNLI as JSON lines or TSV, and any table in a folder named `nli`
    whose header names a premise (or sentence1), a hypothesis (or sentence2) and a label (or gold_label); each plain or
    gzipped.
    A source that another source contains is not read: SNLI and MultiNLI if there is AllNLI, `original_X` if there is
    `all_combined_X`. Rows without an agreed label (`-`, -1) and rows with an empty sentence are dropped and counted.

    Args:
      data_dir: The folder that holds `nli`, or `nli` itself. By default `$JAXWHITEN_DATA_DIR`. If there are no NLI
        files, AllNLI is downloaded once and kept in the cache.
      exclude_overlap: Whether to drop rows that contain a sentence of an evaluation set. `X.overlap_lines.txt` in the
        folder of a file `X.tsv` lists their lines, counted from 0 with the header included.
      sources: Names of the sources to read, in this order; by default all.
      two_way: `"drop"` drops rows labelled only as not entailed, because they belong to none of the three classes.
        `"keep"` keeps them with label -1, for uses that need no label.
      skip_bad_rows: Whether bad rows are dropped and counted, instead of raising an error.

    Raises:
      InputError: A source or `two_way` is unknown, or one of the sources contains another.
      DataNotFoundError: There are no files, and the download fails.
      DataError: A file is bad; the message names file and line.
    """
    if isinstance(sources, str):
        sources = [sources]
    if sources is not None and not sources:
        raise InputError("sources is empty: specify at least one NLI source, or omit it to read all.")
    check_name("two_way", two_way, ("drop", "keep"))
    folder = data_folder(data_dir)
    if folder and not folder.is_dir():
        raise DataNotFoundError(
            f"{folder}: no such folder. Set `data_dir` or $JAXWHITEN_DATA_DIR to a folder that contains nli, or"
            " unset both and connect to the network to download AllNLI."
        )
    rules = {"two_way": two_way, "exclude_overlap": exclude_overlap, "skip_bad_rows": skip_bad_rows}
    rows = None
    if folder:
        rows = read_nli(folder, sources, **rules)
    if rows is None:
        try:
            rows = read_nli(_downloaded(), sources, **rules)
        except DataNotFoundError as error:
            raise DataNotFoundError(f"{folder}: no NLI files in it. {error}" if folder else str(error)) from error
    assert rows is not None  # the downloaded folder holds AllNLI
    return rows


def _downloaded() -> Path:
    """A folder `nli` with AllNLI, downloaded unless it exists already."""
    url = os.environ.get(URL_VARIABLE) or URL
    folder = cache_dir("datasets", "downloads") / f"allnli-{content_key(url)}" / "nli"
    fetch(url, folder / "AllNLI.tsv.gz", "NLI data (AllNLI, or a folder `nli`)")
    return folder
