"""STS scores of an encoder, raw and whitened: every sentence is encoded once, then every setting is scored.

`python -m eval.sts [--config configs/sts.py] [--config.key=value ...]`

Writes `run.jsonl`, `results.md` and a plot to the folder `out`. With
`--distributed` several processes encode, each its share, and the first one scores and writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from configs import launch
from configs.settings import STS
from eval import common, published
from eval.aggregates import AGGREGATES
from eval.common import Notes, Settings, load_encoder, python, say
from eval.data import STS_TASKS, load_sts
from eval.data.nli import NLIRows
from eval.driver import driven
from eval.encoding import EMPTY, encode, expand_poolings, first_plain, nli_moments
from eval.intervals import resampled, with_intervals
from eval.methods import METHODS
from eval.report.sts import TABLES, VIEWS, plot_scores
from eval.runs import Record, Run
from eval.scoring import WORDS, Scored, fit, score, score_method, score_words
from eval.settings import choices, optional_choices
from eval.tasks import Encoded, TaskIndex, index_sentences
from jaxwhiten import Encoder
from jaxwhiten.runtime import distributed
from jaxwhiten.scoring import count

SAMPLE = "sts_sample"


def evaluator(config: STS) -> Iterator[Run]:
    """The run after each pooling and whitening."""
    settings = Settings.read(config)
    whitenings = settings.whitenings
    task_names = choices("tasks", config.tasks, (*STS_TASKS, SAMPLE))
    (aggregate,) = choices("aggregate", [config.aggregate], AGGREGATES)
    methods = optional_choices("methods", config.methods, tuple(METHODS))
    baselines = optional_choices("baselines", config.baselines, tuple(WORDS))

    # Data and model are read, and every setting checked, before anything slow starts.
    tasks = [load_sts(name, settings.data_dir) for name in task_names]
    nli = settings.load_nli()
    encoder = load_encoder(config, first_plain(settings.poolings))
    sentences, indices = index_sentences(tasks, test_only=not ("target" in whitenings or methods))
    poolings = expand_poolings(settings.poolings, encoder, sentences)
    ks = {pooling: settings.dimensions(encoder, pooling) for pooling in poolings}

    # Each unique sentence is encoded once, for all poolings in one forward pass.
    encoding = time.perf_counter()
    say(f"encoding {len(sentences):,} sentences with {encoder.name}")
    vectors = encode(encoder, sentences, poolings, config.batch_size or None)
    moments = {}
    if nli is not None:
        say(f"encoding the sentences of {len(nli):,} NLI rows")
        moments = nli_moments(encoder, nli, poolings, config.batch_size or None)
    encoded_in = common.encoding(time.perf_counter() - encoding, len(sentences), nli)
    if not distributed.is_writer():
        return

    run = Run(make_header(config, encoder, task_names, aggregate, nli, encoded_in, baselines))
    yield run
    notes = Notes()
    similarities = []
    for row, similarity in word_rows(baselines, whitenings, sentences, nli, indices):
        run.rows.append(row)
        similarities.append(similarity)
    gamma = max(parameters["gamma"] for parameters in settings.parameters)
    for pooling in poolings:
        encoded = Encoded(encoder.name, pooling, vectors[pooling], indices)
        for whitening in (*whitenings, *methods):
            if whitening in whitenings:
                fitted = fit(whitening, encoded, moments.get(pooling), max(ks[pooling]), notes, gamma=gamma)
                scored = score(encoded, fitted, settings.parameters, ks[pooling])
            else:
                scored = score_method(whitening, encoded, ks[pooling], notes, config.seed)
            for row, similarity in scored:
                run.rows.append(row)
                similarities.append(similarity)
            run = run.with_header(warnings=notes.texts())
            yield run

    if config.bootstrap:
        say(f"bootstrap intervals, {config.bootstrap:,} resamples")
        samples = resampled(similarities, indices, aggregate, config)
        run.rows[:] = with_intervals(run.rows, samples, aggregate)
    yield run.with_header(published=published.compare(run.rows, task_names))


def word_rows(
    baselines: Sequence[str],
    whitenings: Sequence[str],
    sentences: list[str],
    nli: NLIRows | None,
    tasks: Sequence[TaskIndex],
) -> Iterator[Scored]:
    """Rows of the baselines of words, fitted like the whitenings."""
    texts = list(sentences)
    if nli is not None:
        texts += nli.sentences
    counts = count(texts)
    by_name = {"target": None, "nli": np.arange(len(sentences), len(texts))}
    fitted_on = {name: by_name[name] for name in whitenings if name in by_name}
    for name in baselines:
        yield from score_words(name, counts, tasks, fitted_on)


def closing(run: Run) -> str:
    """What to run next."""
    if run.header.sample:
        return "This was a sample, not a benchmark."
    return f"Next, softer whitening: {python()} -m eval.sts --config configs/gamma.py --config.model={run.header.model}"


def make_header(
    config: STS,
    encoder: Encoder,
    tasks: Sequence[str],
    aggregate: str,
    nli: NLIRows | None,
    encoding: Record,
    baselines: Sequence[str],
) -> Record:
    """The header of the run."""
    fitted_on = {"target": "fitted on both sides of all scored pairs of the task, all splits"}
    summary = None
    if nli is not None:
        summary = tuple(nli.summary().splitlines())
        sources = ", ".join(f"{source.name} {source.rows:,}" for source in nli.sources)
        fitted_on["nli"] = f"fitted on both sides of {len(nli):,} NLI rows ({sources})"
    kind = "scores"
    if SAMPLE in tasks:
        kind = "sample"
    return common.make_header(
        "eval.sts",
        f"STS {kind}: {encoder.name}",
        config,
        encoder,
        encoding,
        tasks=tuple(tasks),
        aggregate=aggregate,
        sample=SAMPLE in tasks,
        protocol={
            "max_length": encoder.max_length,
            "empty_sentence": EMPTY,
            "pairs": "scored pairs of the test split",
            "correlation": "Spearman, average ranks for ties, x 100",
            "similarity": "cosine",
            "whitening": fitted_on,
            "methods": "fitted as target",
            **({"words": {name: WORDS[name] for name in baselines}} if baselines else {}),
        },
        nli=summary,
    )


__all__ = ["TABLES", "VIEWS", "evaluator", "main", "plot_scores"]
main = driven(evaluator, VIEWS, closing)

if __name__ == "__main__":
    launch.run(main, "configs/sts.py", STS)
