"""STS scores of an encoder, raw and whitened: every sentence is encoded once, then every setting is scored.

`python -m eval.sts [--config configs/sts.py] [--config.key=value ...]`

Writes `results.json`, `run.json`, `figures.safetensors`, `results.md` and plots to the folder `out`. With
`--distributed` several processes encode, each its share, and the first one scores and writes.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from eval import methods, published
from eval.common import machine, make_folder, now, say, versions
from eval.encoding import EMPTY, encode, expand_poolings, first_plain, nli_moments, pooling_names
from eval.figures import add_figures, shown_task, with_params
from eval.intervals import add_intervals
from eval.settings import choices, fractions, integers
from eval.tasks import TaskIndex, index_sentences
from jaxwhiten import Encoder, Moments, Whitening, metrics, report
from jaxwhiten.commands.launch import run
from jaxwhiten.datasets import STS_TASKS, NLIRows, load_nli, load_sts
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import distributed

SAMPLE = "sts_sample"
WHITENINGS = ("none", "target", "nli")

Row = dict[str, Any]


def main(config: ConfigDict) -> None:
    started = time.perf_counter()
    poolings = pooling_names(config.poolings)
    whitenings = choices("whitening", config.whitening, WHITENINGS)
    task_names = choices("tasks", config.tasks, (*STS_TASKS, SAMPLE))
    (aggregate,) = choices("aggregate", [config.aggregate], metrics.AGGREGATES)
    method_names = methods.names_of(config.methods)
    knobs = list(itertools.product(fractions("beta", config.beta), fractions("gamma", config.gamma)))
    if config.bootstrap < 0:
        raise InputError(f"config.bootstrap: {config.bootstrap} resamples; 0 is none.")
    out = Path(config.out)
    if distributed.is_writer():
        make_folder(out)

    # Data and model are read, and every setting checked, before anything slow starts.
    data_dir = config.data_dir or None
    tasks = [load_sts(name, data_dir) for name in task_names]
    nli = load_nli(data_dir, two_way="keep") if "nli" in whitenings else None
    encoder = Encoder.from_pretrained(
        config.model,
        pooling=first_plain(poolings),
        max_length=config.max_length,
        dtype=config.dtype,
        revision=config.revision or None,
    )
    ks = _dimensions(integers("ks", config.ks), encoder)

    # Each unique sentence is encoded once, for all poolings in one forward pass.
    sentences, indices = index_sentences(tasks, test_only=not ("target" in whitenings or method_names))
    poolings = expand_poolings(poolings, encoder, sentences)
    encoding = time.perf_counter()
    say(f"encoding {len(sentences):,} sentences with {encoder.name}")
    vectors = encode(encoder, sentences, poolings, config.batch_size or None)
    moments = {}
    if nli is not None:
        say(f"encoding the sentences of {len(nli):,} NLI rows")
        moments = nli_moments(encoder, nli, poolings, config.batch_size or None)
    encoding = time.perf_counter() - encoding
    if not distributed.is_writer():
        return

    result = report.Run(_header(config, encoder, task_names, aggregate, nli, len(sentences), encoding))
    report.remove_views(out)
    similarities: dict[str, list[np.ndarray]] = {name: [] for name in task_names}
    warned_of: dict[str, dict[str, list[str]]] = {}
    shown = indices[shown_task(indices)]

    def keep(rows: Iterable[tuple[Row, dict[str, np.ndarray]]]) -> None:
        for row, found in rows:
            result.rows.append(row)
            for name in task_names:
                similarities[name].append(found[name])

    for pooling in poolings:
        x, of_pooling = vectors[pooling], {"model": encoder.name, "pooling": pooling}
        for whitening in whitenings:
            fits, fit_seconds, warned = fit(whitening, x, indices, moments.get(pooling), max(ks))
            setting = {**of_pooling, "whitening": whitening}
            first = len(result.rows)
            keep(score(setting, x, indices, fits, knobs, ks, fit_seconds))
            for row in result.rows[first:] if config.geometry else ():
                row["geometry"] = methods.measure(_applied(row, fits, shown, x), shown, config.seed)
            add_figures(result, setting, fits, x, indices, tasks, max(ks), whitenings)
            _note(result, warned_of, pooling, warned)
            result.save(out)
        if method_names:
            warned = {}
            measured = shown if config.geometry else None
            keep(methods.score_methods(method_names, of_pooling, x, indices, ks, config.seed, measured, warned))
            _note(result, warned_of, pooling, warned)
            result.save(out)

    if config.bootstrap:
        say(f"bootstrap intervals, {config.bootstrap:,} resamples")
        add_intervals(result, indices, similarities, config.bootstrap, config.seed)
    result.header["published"] = published.compare(result.rows, task_names)
    result.header["seconds"] = time.perf_counter() - started
    result.header["machine"] = machine()
    result.header["complete"] = True
    result.save(out)
    files = report.write_sts(result, out)
    _print(result, files)


def fit(
    whitening: str, vectors: np.ndarray, indices: Sequence[TaskIndex], nli: Moments | None, k: int
) -> tuple[dict[str, Whitening], float, dict[str, list[str]]]:
    """The whitening of each task under one setting.

    Args:
      whitening: One of `WHITENINGS`.
      vectors: The unique sentences' vectors.
      indices: The tasks.
      nli: Moments of the NLI sentences, where `whitening` is `"nli"`.
      k: The largest dimension that will be asked for.

    Returns:
      Whitenings by task (none without whitening), the seconds the fits took, and for each warning the fits it is about.
    """
    started = time.perf_counter()
    warned: dict[str, list[str]] = {}

    def whitened(moments: Moments, place: str) -> Whitening:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = Whitening.from_moments(moments, n_components=k)
        for warning in caught:
            warned.setdefault(str(warning.message), []).append(place)
        return result

    fits: dict[str, Whitening] = {}
    if whitening == "nli":
        shared = whitened(nli, "nli")
        fits = {task.name: shared for task in indices}
    elif whitening == "target":
        fits = {task.name: whitened(Moments().update(vectors[task.fit]), f"target {task.name}") for task in indices}
    return fits, time.perf_counter() - started, warned


def _applied(row: Row, fits: Mapping[str, Whitening], task: TaskIndex, vectors: np.ndarray) -> np.ndarray:
    """The vectors of a task's test sentences under the setting of a row."""
    x = vectors[methods.test_sentences(task)]
    if row["whitening"] == "none":
        return x
    return with_params(fits[task.name], n_components=row["k"], beta=row["beta"], gamma=row["gamma"]).transform(x)


def score(
    setting: Mapping[str, str],
    vectors: np.ndarray,
    indices: Sequence[TaskIndex],
    fits: Mapping[str, Whitening],
    knobs: Sequence[tuple[float, float]],
    ks: Sequence[int],
    fit_seconds: float,
) -> Iterator[tuple[Row, dict[str, np.ndarray]]]:
    """Rows of results for one pooling and whitening, and the cosine of every test pair by task.

    Without whitening there is one row, at the full dimension. Otherwise one for each (β, γ) and k: the vectors are
    transformed once, to the largest k, and the smaller are prefixes.
    """
    raw = setting["whitening"] == "none"
    widths = [vectors.shape[1]] if raw else ks
    size = 0 if raw else methods.file_bytes(fits[indices[-1].name])
    for beta, gamma in [(0.0, 0.0)] if raw else knobs:
        scores: dict[int, dict[str, Any]] = {k: {} for k in widths}
        cosines: dict[int, dict[str, np.ndarray]] = {k: {} for k in widths}
        seconds = dict.fromkeys(widths, fit_seconds)
        for task in indices:
            started = time.perf_counter()
            own, place = np.unique(np.concatenate([task.left, task.right]), return_inverse=True)
            left, right = np.split(place, 2)
            x, n_fit = vectors[own], 0
            if not raw:
                whitening = with_params(fits[task.name], n_components=max(ks), beta=beta, gamma=gamma)
                x, n_fit = whitening.transform(x), whitening.n_samples_seen_
            shared = time.perf_counter() - started
            for k in widths:
                started = time.perf_counter()
                cosines[k][task.name] = metrics.cosine_pairs(x[left, :k], x[right, :k])
                found = metrics.sts_scores(cosines[k][task.name], task.gold, task.subset)
                scores[k][task.name] = {**found, "n_fit": int(n_fit)}
                seconds[k] += shared + time.perf_counter() - started
        for k in widths:
            fitted = [s["n_fit"] for s in scores[k].values()]
            row = {
                **setting,
                "k": k,
                "beta": beta,
                "gamma": gamma,
                # One fit serves all tasks, or each task has its own.
                "n_fit": fitted[0] if setting["whitening"] == "nli" else sum(fitted),
                "transductive": setting["whitening"] == "target",
                "seconds": seconds[k],
                "fit_seconds": fit_seconds,
                "bytes": size,
                "tasks": scores[k],
            }
            yield row, cosines[k]


def _dimensions(ks: Sequence[int], encoder: Encoder) -> list[int]:
    """The dimensions asked for, 0 read as the full one, largest first."""
    for k in ks:
        if k > encoder.dimension:
            raise InputError(f"config.ks: {k} is more than the {encoder.dimension} dimensions of {encoder.name}.")
    return sorted({k or encoder.dimension for k in ks}, reverse=True)


def _header(
    config: ConfigDict,
    encoder: Encoder,
    tasks: Sequence[str],
    aggregate: str,
    nli: NLIRows | None,
    sentences: int,
    seconds: float,
) -> dict[str, Any]:
    """What `run.json` says about the rows."""
    protocol = {
        "max_length": encoder.max_length,
        "empty_sentence": EMPTY,
        "pairs": "scored pairs of the test split",
        "correlation": "Spearman, average ranks for ties, x 100",
        "similarity": "cosine",
        "whitening": {"target": "fitted on both sides of all scored pairs of the task, all splits"},
        "methods": "fitted as target",
    }
    if nli is not None:
        sources = ", ".join(f"{source.name} {source.rows:,}" for source in nli.sources)
        rows = f"{len(nli):,} NLI rows ({sources})"
        protocol["whitening"]["nli"] = f"fitted on both sides of {rows}"
    return {
        "program": "eval.sts",
        "title": f"STS {'sample' if SAMPLE in tasks else 'scores'}: {encoder.name}",
        "complete": False,
        "date": now(),
        "model": encoder.name,
        "fingerprint": encoder.fingerprint,
        "dimension": encoder.dimension,
        "dtype": encoder.dtype,
        "tasks": list(tasks),
        "aggregate": aggregate,
        "sample": SAMPLE in tasks,
        "seed": config.seed,
        "protocol": protocol,
        "nli": None if nli is None else nli.summary().splitlines(),
        "encoding": {"sentences": sentences, "nli_rows": 0 if nli is None else len(nli), "seconds": seconds},
        "machine": machine(),
        "versions": versions(),
        "config": config.to_dict(),
        "warnings": [],
        "figures": {},
    }


def _note(
    result: report.Run,
    warned_of: dict[str, dict[str, list[str]]],
    pooling: str,
    warned: Mapping[str, list[str]],
) -> None:
    """Adds the warnings of one pooling's fits to the notes of the run."""
    for message, places in warned.items():
        warned_of.setdefault(message, {}).setdefault(pooling, []).extend(places)
    result.header["warnings"] = [_warning(text, places) for text, places in warned_of.items()]


def _warning(text: str, places: Mapping[str, Sequence[str]]) -> str:
    """A warning of some fits as one note: which they are, by pooling where they differ."""
    by_fits: dict[tuple[str, ...], list[str]] = {}
    for pooling, fits in places.items():
        by_fits.setdefault(tuple(fits), []).append(pooling)
    where = "; ".join(f"{', '.join(fits)} ({', '.join(poolings)})" for fits, poolings in by_fits.items())
    return f"{where}: {text}"


def _print(result: report.Run, files: Sequence[Path]) -> None:
    header = result.header
    views = (
        report.sts_table,
        report.difference_table,
        report.geometry_table,
        report.cost_table,
        report.published_table,
    )
    tables = [view(result) for view in views]
    print("\n" + "\n\n".join(table.text() for table in tables if table))
    print(f"\n{header['seconds']:.0f} s, of which encoding {header['encoding']['seconds']:.0f} s")
    print(f"Table: {files[0]}\nPage: {files[1]}")
    if files[2:]:
        print("Plots: " + " ".join(map(str, files[2:])))
    if header["sample"]:
        print("This was a sample, not a benchmark. Next, the seven STS tasks: python -m eval.sts --config.data_dir=DIR")
        print("(without a folder they are downloaded); --config.model=NAME_OR_FOLDER takes another encoder.")
    else:
        print(
            "Next: softer whitening of a tuned encoder, --config.gamma=0,0.5,1; another encoder, --config.model=NAME."
        )


if __name__ == "__main__":
    run(main, "configs/sts.py")
