"""`jaxwhiten verify [PATH...]`: checks this installation, or models, indexes, vectors, fitted files and data."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import Report, Source, add
from jaxwhiten.commands.texts import sentences
from jaxwhiten.counting import counted
from jaxwhiten.errors import (
    REASON,
    DataError,
    DataNotFoundError,
    InputError,
    JaxwhitenError,
    MissingDependencyError,
    check_installed,
    turning,
)
from jaxwhiten.progress import watched

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.runtime.checks import Finding

_PEER = "sentence-transformers"
_SHIPPED = "jaxwhiten-tiny"  # with which an installation is tried
_FILES = (".npy", ".safetensors")
_OF_MODELS = ("config.json", "modules.json", "0_Transformer/config.json")
_MARKS = {True: "ok  ", None: "--  ", False: "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "model folder or Hugging Face model ID, index, .npy file, whitening or moments file, or data folder"
    add(parser, "path", f"{what}; default: check this installation", type=Source, nargs="*")
    against = f"{_PEER}: fail where a model cannot be compared with it; needs the extra parity"
    add(parser, "--against PEER", against, choices=[_PEER])
    add(parser, "--texts FILE", "your own texts for that comparison, in a format that encode reads", type=Source)


def run(args: argparse.Namespace) -> Iterator[Report]:
    if args.texts and not args.against:
        raise InputError(f"--texts requires --against: pass --against {_PEER}.")
    if args.against:
        check_installed("sentence_transformers", "parity", "The comparison", _PEER)
    texts = list(sentences(args.texts)) if args.texts else []
    if args.path:
        yield Report(f"     {'check':<34}{'max diff':>9}{'limit':>9}  what")
    findings = []
    with watched():
        for check in _of_paths(args.path, args.against is not None, texts) if args.path else _of_installation():
            findings.append(check)
            yield Report(f"{_MARKS[check.ok]} {_line(check, wide=bool(args.path))}")
    wrong = [check for check in findings if check.ok is False]
    yield Report("", {"ok": not wrong, "checks": [check._asdict() for check in findings]})
    if wrong:
        raise JaxwhitenError(f"{len(wrong)} of {len(findings)} checks failed: {wrong[0].name}: {wrong[0].detail}")


def _line(check: Finding, *, wide: bool) -> str:
    detail = " ".join(check.detail.split())
    if not wide:
        return f"{check.name:<20} {detail}"
    figures = [f"{x:>9.1e}" if x is not None else " " * 9 for x in (check.difference, check.allowed)]
    return f"{check.name:<34}{''.join(figures)}  {detail}"


def _of_installation() -> Iterator[Finding]:
    from jaxwhiten.encoding.verification import Subject, as_loaded, codes
    from jaxwhiten.engines import DEFAULT, ENGINES
    from jaxwhiten.models.folders import resolve_folder
    from jaxwhiten.runtime.checks import finding, installation
    from jaxwhiten.text import uncounted

    yield from installation()
    for name in ENGINES:
        if name != DEFAULT:
            yield finding(name, _engine, name)
    encoders: list[Encoder] = []
    yield finding(_SHIPPED, _model, _SHIPPED, encoders)
    for encoder in encoders:
        subject = Subject(encoder, resolve_folder(_SHIPPED))
        with uncounted():
            yield finding("vectors", as_loaded, subject)
            yield finding("codes", codes, subject)


def _engine(name: str) -> str:
    from jaxwhiten.engines import engine_class
    from jaxwhiten.runtime.checks import Skipped

    with turning(Skipped, REASON, MissingDependencyError):
        return str(engine_class(name).installed())


def _of_paths(paths: list[str], against: bool, texts: list[str]) -> Iterator[Finding]:
    from jaxwhiten.runtime.checks import finding

    for name in paths:
        path = Path(name)
        prefix = f"{name}: " if len(paths) > 1 else ""
        if path.is_file() or path.suffix in _FILES:
            yield finding(name, _vectors if path.suffix == ".npy" else _fitted, name)
        elif (path / "header.json").is_file():
            yield finding(name, _index, path)
        elif path.is_dir() and not any((path / name).is_file() for name in _OF_MODELS):
            yield finding(name, _data, path)
        else:
            encoders: list[Encoder] = []
            yield finding(name, _model, name, encoders)
            for encoder in encoders:
                yield from _of_model(encoder, name, prefix, against, texts)


def _of_model(encoder: Encoder, name: str, prefix: str, against: bool, texts: list[str]) -> Iterator[Finding]:
    from jaxwhiten.encoding.verification import verify
    from jaxwhiten.text import uncounted

    with uncounted():  # its texts are of every length
        for check in verify(encoder, name, against=against, texts=texts):
            yield check._replace(name=f"{prefix}{check.name}")


def _model(name: str, encoders: list[Encoder]) -> str:
    """Loads a model, and appends it to `encoders`."""
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.engines import DEFAULT
    from jaxwhiten.head import own_pooling
    from jaxwhiten.models.folders import resolve_folder

    encoder = Encoder.from_pretrained(name, pooling=own_pooling(resolve_folder(name)), engine=DEFAULT)
    encoders.append(encoder)
    config = encoder.config
    return (
        f"{config.model_type}, {config.num_layers} layers of {config.hidden_size}, {config.parameters / 1e6:.1f} M"
        f" weights; {encoder.head.summary}, {encoder.dimension} dimensions, up to {encoder.max_length} tokens"
    )


def _vectors(name: str) -> str:
    """Checks that all vectors are finite and that some differ."""
    from jaxwhiten.arrays import blocks, check_finite
    from jaxwhiten.coded import as_floats
    from jaxwhiten.commands.vectors import open_vectors

    x = open_vectors(name)
    differ = False
    for part in blocks(len(x), 65_536):
        rows = as_floats(x[part])
        check_finite(rows, part.start, "vectors")
        differ = differ or bool((rows != as_floats(x[:1])).any())
    if len(x) > 1 and not differ:
        raise DataError(f"all {len(x):,} vectors are identical")
    return f"{counted(len(x), 'vectors')}, {x.shape[1]} {'bytes' if x.dtype.itemsize == 1 else 'dimensions'}, {x.dtype}"


def _fitted(name: str) -> str:
    from jaxwhiten.commands.inspect import load_fitted
    from jaxwhiten.whitening import Whitening

    kind, fitted = load_fitted(name)
    description = f"{kind} of {counted(fitted.n_samples_seen_, 'rows')}, {fitted.n_features_in_} dimensions"
    return description + (f", rank {fitted.rank_}" if isinstance(fitted, Whitening) else f", {fitted.nbytes} bytes")


def _index(folder: Path) -> str:
    from jaxwhiten.search import load_index

    index = load_index(folder)
    return f"{index.backend} index of {counted(index.size, 'vectors')}, {index.dimension} dimensions"


def _data(folder: Path) -> str:
    """Reads and counts the STS tasks of a SentEval-style folder."""
    from jaxwhiten.datasets import STS_TASKS, load_sts

    findings = []
    missing = []
    for task in STS_TASKS:
        try:
            splits = load_sts(task, folder).splits
            findings.append(f"{task} {'/'.join(f'{len(pairs):,}' for pairs in splits.values())}")
        except DataNotFoundError:
            missing.append(task)
    if not findings:
        raise DataError("no model, index or data in it: no config.json, header.json or downstream/STS")
    return f"pairs of {', '.join(findings)}" + (f"; missing: {', '.join(missing)}" if missing else "")
