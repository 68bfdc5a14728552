"""Runs: a program's results as one file of JSON lines, of which the first is the header and every other one a row.

The header says how the rows were made: `program`, the `command` to type (a path below the data folder begins with
$JAXWHITEN_DATA_DIR; options that name other folders of the machine are left out), its `arguments`, the git `commit`,
and whether its programs were unchanged since (`clean`), `date`, `versions`, `machine`, and `data`: the checksums of the
files that the command names. `complete` is false while rows are to come. A program adds what its tables need. Where the
commit is unknown, `committed` is the one that put the results here, and the command is made of the arguments.

What programs write to runs/NAME.jsonl or runs/NAME/run.jsonl is kept in docs/runs/NAME.jsonl, without sentences of data
sets and folders of the machine, so that every table can be made again from the repository.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import itertools
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import threadpoolctl

import jaxwhiten
from eval.machine import devices, peak_memory
from jaxwhiten import io
from jaxwhiten.errors import REASON, FormatError, turning
from jaxwhiten.runtime import hardware

FORMAT = 3
ROOT = Path(jaxwhiten.__file__).parents[1]
MADE = Path("runs")
KEPT = Path("docs/runs")
FILE = "run.jsonl"
SOURCES = ("jaxwhiten", "train", "eval", "configs", "benchmarks")
_DATA = "JAXWHITEN_DATA_DIR"
_PACKAGES = [
    "jax",
    "jaxlib",
    "flax",
    "numpy",
    "scipy",
    "tokenizers",
    "torch",
    "transformers",
    "sentence-transformers",
    "onnxruntime",
    "openvino",
    "optimum-intel",
    "keras-hub",
    "model2vec",
    "faiss-cpu",
    "faiss-gpu",
    "scikit-learn",
]
# What matrix products make use of, as Linux names it.
_FLAGS = frozenset(
    ("avx2", "avx_vnni", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd", "sve")
)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")
_OUTPUTS = ("-o", "--output")
_LOAD = None  # of the machine, before a program adds its own
if hasattr(os, "getloadavg"):
    _LOAD = os.getloadavg()[0]


class Record(dict[str, Any]):
    """A row, a header, or a part of one: its keys are attributes, too.

    >>> Record(k=8, tasks=Record(mrpc=70.0)).tasks.mrpc
    70.0
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name} in a record of {', '.join(self)}") from None

    def but(self, **changes: object) -> Record:
        """The record with some values changed."""
        return Record(self | changes)


@dataclass(frozen=True)
class Run:
    """A header, and rows."""

    header: Record
    rows: list[Record] = field(default_factory=list)

    def with_header(self, **changes: object) -> Run:
        """The same rows under a changed header."""
        return Run(self.header.but(**changes), self.rows)

    def save(self, path: io.PathLike) -> Path:
        """Writes the file, or in a folder `run.jsonl`, atomically; numbers that JSON lacks are null.

        Returns:
          The file.
        """
        path = Path(path)
        if path.suffix != ".jsonl":
            path = path / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(io.to_json(record), ensure_ascii=False) for record in (self.header, *self.rows))
        io.write_text(path, "".join(f"{line}\n" for line in lines))
        return path

    @classmethod
    def load(cls, path: io.PathLike) -> Run:
        """Reads what `save` wrote.

        Raises:
          FormatError: It is missing, damaged, or of another format.
        """
        path = Path(path)
        if path.suffix != ".jsonl":
            path = path / FILE
        remedy = "Run the program again."
        with turning(FormatError, f"{path}: not readable as lines of JSON ({REASON}). {remedy}", OSError, ValueError):
            lines = path.read_text(encoding="utf-8").splitlines()
        header, *rows = _records([io.parse_json(line, dict, path, remedy) for line in lines]) or [Record()]
        if header.get("format") != FORMAT:
            raise FormatError(f"{path}: expected the header of a run of format {FORMAT}, got {header!r:.80}. {remedy}")
        return cls(header, rows)


def _records(value: Any) -> Any:
    if isinstance(value, dict):
        return Record({key: _records(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_records(item) for item in value]
    return value


def header(program: str, arguments: Mapping[str, object], **fields: object) -> Record:
    """The header of a run that begins now; `fields` are what the program's tables need."""
    record = Record(
        format=FORMAT,
        program=program,
        command=command(program, arguments),
        arguments=_records(dict(arguments)),
        **source(),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=Record(versions()),
        machine=Record(machine()),
        data=Record(checksums(sys.orig_argv[1:])),
        complete=False,
    )
    return record.but(**_records(fields))


def command(program: str, arguments: Mapping[str, object]) -> str:
    """What to type for the same run: what was typed, or all settings where a program is called from Python."""
    if program in sys.orig_argv:
        words = sys.orig_argv[sys.orig_argv.index(program) + 1 :]
    else:
        words = [f"--config.{key}={value}" for key, value in arguments.items() if value != ""]
    parts: list[str] = []
    for word in words:
        option, equals, value = word.rpartition("=")
        if not Path(value).is_absolute():
            parts.append(shlex.quote(word))
        elif (root := os.environ.get(_DATA)) and Path(value).is_relative_to(root):
            parts.append(f"{option}{equals}${_DATA}/{Path(value).relative_to(root)}")
        elif not equals and parts and parts[-1].startswith("-") and "=" not in parts[-1]:
            parts.pop()
        elif not equals:
            parts.append(shlex.quote(Path(value).name))
    return " ".join(["python -m", program, *parts])


def checksums(words: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each file that words of a command name to read, by the file's name; Python's files are none."""
    read = (word for before, word in itertools.pairwise(["", *words]) if before not in _OUTPUTS)
    paths = (Path(word.rpartition("=")[2]) for word in read)
    return {path.name: io.sha256_file(path) for path in paths if path.suffix not in ("", ".py") and path.is_file()}


@functools.cache
def source() -> dict[str, str | bool | None]:
    """The commit of this repository, and whether its programs are as they are in it; None where git knows neither."""
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=normal", "--", *SOURCES)
    return {"commit": commit or None, "clean": None if changed is None else not changed}


def git(*words: str) -> str | None:
    """What git says in this repository; None if it fails."""
    try:
        result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def versions() -> dict[str, str]:
    """Versions of this project, Python and the packages that affect figures, as far as they are installed."""
    installed = {name: metadata.version(name) for name in _PACKAGES if any(metadata.distributions(name=name))}
    return {"jaxwhiten": jaxwhiten.__version__, "python": platform.python_version(), **installed}


def machine() -> dict[str, object]:
    """Where a program runs, and the peak memory of its process so far."""
    path = Path("/proc/cpuinfo")
    lines = []
    if path.exists():
        lines = [line.partition(":") for line in path.read_text().splitlines()]
    cpu = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    return {
        "cpu": cpu.get("model name") or platform.processor() or platform.machine(),
        "cores": hardware.cores(),
        "devices": devices() if "jax" in sys.modules else None,
        "system": platform.platform(),
        "flags": sorted(_FLAGS.intersection((cpu.get("flags") or cpu.get("Features") or "").split())),
        "load_at_start": _LOAD,
        "threads": {name: os.environ[name] for name in _THREADS if name in os.environ},
        "pools": [
            {key: pool.get(key) for key in ("user_api", "internal_api", "num_threads", "version")}
            for pool in threadpoolctl.threadpool_info()
        ],
        "peak_gb": peak_memory(),
    }


def module(run: Run) -> ModuleType:
    """The program of a run, which has its tables."""
    return importlib.import_module(run.header.program)


def keep(run: Run, path: Path) -> Run:
    """Saves the part of a run that the repository keeps, and returns it."""
    arguments = Record(run.header.arguments)
    arguments |= {key: "" for key in ("data_dir", "cache", "out") if key in arguments}
    arguments |= {key: Path(arguments[key]).name for key in ("dataset", "outside", "corpus") if key in arguments}
    header = run.header
    if "dataset" in header:
        header = header.but(dataset=header.dataset.but(conflicts=()))
    public = Run(header.but(arguments=arguments), run.rows)
    public.save(path)
    return public


def expand_braces(name: str) -> list[str]:
    """The names that a name with `{A,B}` stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(words) for words in itertools.product(*parts)]


def find(name: str) -> Run | None:
    """The run of a name in runs/, which is then kept if it is complete, or the kept one; None if there is neither.

    A `*` stands for seeds: the rows are means over the runs of that name.

    Raises:
      FormatError: There is only one of an older format.
    """
    if "*" in name:
        seeds = sorted({*names(MADE, name), *names(KEPT, name)})
        if seeds:
            return over_seeds([run for seed in seeds if (run := find(seed))], name.partition("-*")[0])
        return None
    path = KEPT / f"{name}.jsonl"
    latest = next((file for file in (MADE / name / FILE, MADE / f"{name}.jsonl") if file.is_file()), None)
    if latest is not None:
        run = Run.load(latest)
        if run.header.complete:
            return keep(run, path)
        return run
    return Run.load(path) if path.is_file() else None


def names(folder: Path = KEPT, pattern: str = "**/*") -> list[str]:
    """The names of the runs below a folder that match a pattern of `Path.glob`."""
    files = [*folder.glob(f"{pattern}.jsonl"), *folder.glob(f"{pattern}/{FILE}")]
    paths = (path.parent if path.name == FILE else path.with_suffix("") for path in files)
    return sorted({path.relative_to(folder).as_posix() for path in paths})


def over_seeds(runs: Sequence[Run], name: str) -> Run:
    """A run whose rows are those of several: means of their figures, and the widest of their intervals."""
    name = f"{name}, {len(runs)} seed{'s' * (len(runs) > 1)}"
    rows = [_joined(group).but(model=name) for group in zip(*(run.rows for run in runs), strict=True)]
    return Run(runs[0].header, rows)


def _joined(values: Sequence[Any], combine: Any = fmean) -> Any:
    """The combination of the same part of several runs; a value that is no number is taken from the first run."""
    first = values[0]
    if any(value is None for value in values):
        return None
    if isinstance(first, dict):
        combiners = {"low": min, "high": max}
        return Record({key: _joined([value[key] for value in values], combiners.get(key, fmean)) for key in first})
    if isinstance(first, float):
        return combine(values)
    return first
