"""Shared parts of the evaluations: settings, encoder, the header of a run, and warnings as notes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.settings import Evaluation, Scored, Whitened
from eval import runs
from eval.data import NLIRows, load_nli
from eval.encoding import pooling_names
from eval.runs import Record
from eval.settings import choices, integers, optional_choices, parameters
from eval.words import BASELINES, LAYER0, WORDS
from jaxwhiten import Encoder
from jaxwhiten.datasets import RetrievalData
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import distributed

WHITENINGS = ("none", "target", "nli")
LEVEL = 0.95  # of bootstrap intervals


@dataclass(frozen=True)
class Settings:
    """The settings that both programs take from a config."""

    poolings: tuple[str, ...]  # for `expand_poolings`
    whitenings: tuple[str, ...]
    parameters: tuple[dict[str, Any], ...]  # of the whitenings, without k
    ks: tuple[int, ...]  # 0 is the full dimension
    out: Path
    data_dir: str | None
    baselines: tuple[str, ...] = ()

    @classmethod
    def read(cls, config: Whitened, extra: tuple[str, ...] = ()) -> Settings:
        """The settings, checked; makes the folder for results, before anything slow. `extra` are further whitenings."""
        if config.bootstrap < 0:
            raise InputError(f"config.bootstrap: {config.bootstrap} resamples; 0 is none.")
        baselines = optional_choices("baselines", config.baselines, BASELINES)
        poolings = pooling_names(config.poolings)
        if "layer0" in baselines and LAYER0 not in poolings:
            poolings = (*poolings, LAYER0)
        settings = cls(
            poolings,
            choices("whitening", config.whitening, (*WHITENINGS, *extra)),
            parameters(config),
            integers("ks", config.ks),
            Path(config.out),
            config.data_dir or None,
            baselines,
        )
        if settings.words and settings.whitenings == ("none",):
            raise InputError(
                f"config.baselines: {', '.join(settings.words)} count words on what a whitening is fitted on; "
                f"add {' or '.join((*WHITENINGS[1:], *extra))} to config.whitening."
            )
        if distributed.is_writer():
            make_folder(settings.out)
        return settings

    @property
    def words(self) -> tuple[str, ...]:
        """The baselines that know words alone."""
        return tuple(name for name in self.baselines if name in WORDS)

    @property
    def protocol(self) -> dict[str, dict[str, str]]:
        """What the header of a run says about them."""
        if self.words:
            return {"words": {name: WORDS[name] for name in self.words}}
        return {}

    def load_nli(self) -> NLIRows | None:
        """The NLI rows, or None where no whitening is fitted on them."""
        if "nli" in self.whitenings:
            return load_nli(self.data_dir, two_way="keep")
        return None

    def dimensions(self, encoder: Encoder, pooling: str) -> list[int]:
        """The dimensions asked for, 0 read as the full one, largest first."""
        width = encoder.with_pooling(pooling).without_code().dimension
        for k in self.ks:
            if k > width:
                raise InputError(f"config.ks: {k} is more than the {width} dimensions of {encoder.name}, {pooling}.")
        return sorted({k or width for k in self.ks}, reverse=True)


def load_encoder(config: Evaluation, pooling: str) -> Encoder:
    """The encoder that the config names; poolings other than auto are compared bare."""
    return Encoder.from_pretrained(
        config.model,
        pooling=pooling,
        bare=True,
        revision=config.revision or None,
        max_length=config.max_length or None,
        dtype=config.dtype,
        engine=config.engine,
    )


class Notes:
    """Collects warnings of fits as notes of a run: each text once, with the fits and poolings it concerns."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, dict[str, None]]] = {}  # text, pooling, fits

    def add(self, text: str, fit: str, pooling: str) -> None:
        """Adds one warning of a fit."""
        self._places.setdefault(text, {}).setdefault(pooling, {})[fit] = None

    @contextlib.contextmanager
    def collect(self, fit: str, pooling: str) -> Iterator[None]:
        """Takes down the warnings given within the block."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            self.add(str(warning.message), fit, pooling)

    def texts(self) -> tuple[str, ...]:
        """The notes, such as `"target STS-B (mean, cls): few rows"`."""
        notes = []
        for text, places in self._places.items():
            by_fits: dict[tuple[str, ...], list[str]] = {}
            for pooling, fits in places.items():
                by_fits.setdefault(tuple(fits), []).append(pooling)
            sources = "; ".join(f"{', '.join(fits)} ({', '.join(poolings)})" for fits, poolings in by_fits.items())
            notes.append(f"{sources}: {text}")
        return tuple(notes)


def say(text: str) -> None:
    """Prints a line on stderr in the process that writes."""
    if distributed.is_writer():
        print(text, file=sys.stderr, flush=True)


def python() -> str:
    """The Python command to type in this folder."""
    path = Path(sys.executable)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return "python"


def make_folder(folder: Path) -> None:
    """Makes a folder for results."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"config.out: {folder} cannot be made a folder ({error.strerror}).") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"config.out: {folder} cannot be written to.")


def make_header(
    program: str,
    title: str,
    config: Scored,
    encoder: Encoder,
    encoding: Record,
    protocol: Mapping[str, object],
    **fields: object,
) -> Record:
    """The header of an evaluation that begins; `protocol` is how it measures, by part, as text for captions."""
    fields = {"published": (), "warnings": (), "resamples": 0, "level": LEVEL, "seconds": None, **fields}
    return runs.header(
        program,
        dataclasses.asdict(config),
        title=title,
        model=encoder.name,
        fingerprint=encoder.fingerprint,
        dimension=encoder.dimension,
        dtype=encoder.dtype,
        seed=config.seed,
        encoding=encoding,
        protocol=protocol,
        **fields,
    )


def encoding(seconds: float, sentences: int, nli: NLIRows | None = None, note: str = "") -> Record:
    """The time of encoding, and the numbers of unique sentences and NLI rows."""
    return Record(seconds=seconds, sentences=sentences, nli_rows=len(nli or ()), note=note)


def dataset(data: RetrievalData, queries: int) -> Record:
    """The data that is searched, with statistics from reading it."""
    counts = Record({**data.counts, "queries_without_gold": len(data.queries) - len(data.with_gold().queries)})
    return Record(name=data.name, documents=len(data.documents), queries=queries, counts=counts, conflicts=[])
