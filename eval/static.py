"""Static encoders distilled from a teacher, compared with model2vec's: quality, speed, size, and effect of each step.

`python -m eval.static [--config configs/static.py] [--config.key=value ...]`

Every setting is scored on the test pairs of the STS tasks, with paired intervals of its difference to model2vec at the
same dimensions, and of each changed step to the unchanged setting. Writes `run.jsonl` and `results.md`
to the folder `out`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from configs import launch
from configs.settings import Static
from eval import common, measure
from eval.common import make_folder, say
from eval.data import STS_TASKS, load_sts
from eval.driver import driven
from eval.encoding import EMPTY
from eval.intervals import resampled, with_ends
from eval.report.static import TABLES, VIEWS
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, choices, integers, optional_choices, words
from eval.tasks import TaskIndex, index_sentences
from jaxwhiten import Encoder, metrics, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import Corpus, RetrievalData, corpus_files
from jaxwhiten.encoding import Vocabulary, distil
from jaxwhiten.errors import InputError
from jaxwhiten.models import StaticEncoder, resolve_folder
from jaxwhiten.search import build_index

SAMPLE = "sts_sample"
TEACHER = "teacher"
PEER = "model2vec"
PEER_OF_TEACHER = "sentence-transformers"
# Settings of `distil`: without a corpus, without the teacher's sentences, and with them.
OURS = {"zipf": {}, "whitened": {}, "rows": {"fit": True}}
BASE = "whitened"
BEST = "rows"
# Each changes one step of `BASE`.
STEPS: dict[str, dict[str, Any]] = {
    "uniform weights": {"weighted": False},
    "γ = 0": {"gamma": 0.0},
    "γ = 0.5": {"gamma": 0.5},
    "no SIF": {"sif": None},
    "a = 1e-4": {"sif": 1e-4},
}
CODES = ("float16", "int8", "48 bytes")
PARTS = (TEACHER, PEER_OF_TEACHER, PEER, *OURS, "codes", "steps")
_REPEATS = 3
_FIRST = 10


@dataclass(frozen=True)
class Scored:
    """The data on which every setting is scored."""

    sentences: list[str]
    tasks: list[TaskIndex]
    dev_sentences: list[str]
    dev: list[TaskIndex]
    data: RetrievalData
    queries: list[str]
    gold: metrics.Gold
    timed: list[str]


@dataclass(frozen=True)
class Setting:
    """An encoder to be scored: its name, its function, and its size."""

    model: str
    method: str
    k: int
    encode: Callable[[list[str]], np.ndarray]
    megabytes: float
    base: str | None = None  # the method the difference to which is given, where it is scored, too
    sts_only: bool = False  # scored on STS only


def evaluator(config: Static) -> Iterator[Run]:
    """The run after each setting."""
    models = words("models", config.models)
    poolings = words("poolings", config.poolings)
    if len(models) != len(poolings):
        raise InputError(f"config.poolings: give one for each of {len(models)} teachers.")
    ks = integers("ks", config.ks)
    tasks = choices("tasks", config.tasks, (*STS_TASKS, SAMPLE))
    dev = optional_choices("dev", config.dev, STS_TASKS)
    choices("parts", config.parts, PARTS)
    make_folder(Path(config.out))
    if not config.corpus:
        raise InputError("config.corpus is empty: name a file or folder of text, one passage per line.")
    teachers = [Encoder.from_pretrained(m, pooling=p, bare=True) for m, p in zip(models, poolings, strict=True)]
    text = list(sentences_of(config.corpus, config.passages))
    scored = read(config, tasks, dev, text)

    run = Run(make_header(config, teachers[0], scored))
    yield run
    similarities: list[dict[str, np.ndarray]] = []
    bases: list[str | None] = []
    for name, teacher in zip(models, teachers, strict=True):
        for setting in settings(config, name, teacher, ks, text):
            row, similarity = score(setting, scored)
            run.rows.append(row)
            similarities.append(similarity)
            bases.append(setting.base)
            say(f"{row.model}, {row.method}, {row.k}: STS {row.sts:.2f}")
            yield run
    if config.bootstrap:
        samples = resampled(similarities, scored.tasks, "wmean", config)["average"]
        run.rows[:] = with_intervals(run.rows, bases, samples)
        yield run


def sentences_of(path: str, passages: int) -> Iterator[str]:
    """The sentences of this many passages, evenly spaced; 0 for all."""
    corpus = Corpus(corpus_files(path))
    step = 1
    if passages:
        step = max(1, sum(1 for _ in corpus.passages()) // passages)
    for passage in itertools.islice(corpus.passages(), 0, passages * step or None, step):
        yield from (sentence for sentence in passage.split(". ") if sentence.strip())


def read(config: Static, tasks: Sequence[str], dev: Sequence[str], text: list[str]) -> Scored:
    """The tasks, the search, and the sentences to time."""
    folder = config.data_dir or None
    sentences, indices = index_sentences([load_sts(name, folder) for name in tasks], test_only=True)
    loaded = (load_sts(name, folder) for name in dev)
    of_dev = [dataclasses.replace(task, splits={"test": task.splits["dev"]}) for task in loaded]
    dev_index = index_sentences(of_dev, test_only=True)
    data = load_search(config.dataset, folder)
    _, queries, gold = measure.sample_queries(data, config.queries)
    return Scored(sentences, indices, *dev_index, data, queries, gold, text[: config.timed])


def settings(config: Static, name: str, teacher: Encoder, ks: Sequence[int], text: list[str]) -> Iterator[Setting]:
    """The teacher, model2vec and ours at every size, the table in fewer bytes, and ours with one step changed."""
    parts = words("parts", config.parts)
    size = 4e-6 * teacher.config.parameters
    if TEACHER in parts:
        yield Setting(name, TEACHER, teacher.dimension, teacher.encode, size)
    if PEER_OF_TEACHER in parts:
        yield by_sentence_transformers(name, teacher, size, Path(config.out))
    if PEER in parts:
        yield from (peer(name, k) for k in ks)
    vocabulary = Vocabulary.read(teacher, text, sentences=config.sentences, seed=config.seed)
    best = {}
    if not {BEST, "codes"}.isdisjoint(parts):
        best = {k: distil(vocabulary, k, **OURS[BEST]) for k in ks}
    for k, method in itertools.product(ks, [method for method in OURS if method in parts]):
        if method == BEST:
            static = best[k]
        elif method == "zipf":
            static = distil(Vocabulary.read(teacher), k, **OURS[method])
        else:
            static = distil(vocabulary, k, **OURS[method])
        yield jaxwhiten_setting(name, method, k, static)
    if "codes" in parts:
        yield from (coded(name, code, best[ks[0]]) for code in CODES)
    if "steps" in parts:
        for step, change in STEPS.items():
            static = distil(vocabulary, ks[0], **change)
            yield jaxwhiten_setting(name, step, ks[0], static, base=BASE, sts_only=True)


def jaxwhiten_setting(
    name: str, method: str, k: int, static: Encoder, base: str = PEER, sts_only: bool = False
) -> Setting:
    return Setting(name, method, k, static.encode, 4e-6 * k * static.config.vocab_size, base, sts_only)


def peer(name: str, k: int) -> Setting:
    """model2vec's own distillation, with its defaults except the size; float32, so that bytes are comparable."""
    from model2vec.distill import distill

    model = distill(str(resolve_folder(name)), pca_dims=k, device="cpu", quantize_to="float32")
    return Setting(name, PEER, k, measure.keeping_tokenizer_threads(model.encode), model.embedding.nbytes / 1e6)


def by_sentence_transformers(name: str, teacher: Encoder, size: float, out: Path) -> Setting:
    """The teacher's folder in sentence-transformers, on the same cores."""
    from sentence_transformers import SentenceTransformer

    folder = teacher.save(out / "teachers" / Path(name).name)
    model = SentenceTransformer(str(folder), device="cpu")
    encode = functools.partial(model.encode, show_progress_bar=False)
    return Setting(name, f"{TEACHER}, {PEER_OF_TEACHER}", teacher.dimension, encode, size)


def coded(name: str, code: str, static: Encoder) -> Setting:
    """The table of an encoder in fewer bytes, decoded for scoring."""
    table = np.asarray(static.model().embedding[...])
    rows, k = table.shape
    if code == "float16":
        decoded = table.astype(np.float16)
        size = 2 * k
    elif code == "int8":
        scale = np.abs(table).max() / 127
        decoded = np.rint(table / scale) * scale
        size = k
    else:  # a spectrum code of the direction, and the length in float16
        lengths = np.linalg.norm(table, axis=1, keepdims=True)
        count = min(int(code.split()[0]), k // 2)
        directions = normalize(table)
        fitted = SpectrumCode(bytes=count).fit(directions[lengths[:, 0] > 0])
        decoded = normalize(fitted.decode(fitted.encode(directions))) * lengths.astype(np.float16)
        size = count + 2
    folder = static.tokenizer.folder
    encoder = Encoder(StaticEncoder(decoded.astype(np.float32)), folder, max_length=static.max_length)
    return Setting(name, f"rows, {code}", k, encoder.encode, 1e-6 * rows * size, base="rows")


def score(setting: Setting, scored: Scored) -> tuple[Record, dict[str, np.ndarray]]:
    """A row, and the similarities of the test pairs of every task."""
    x = setting.encode(scored.sentences)
    similarities = {task.name: task.similarity(x) for task in scored.tasks}
    tasks = {task.name: task.score(similarities[task.name]) for task in scored.tasks}
    dev = None
    if scored.dev:
        d = setting.encode(scored.dev_sentences)
        dev = float(np.mean([task.score(task.similarity(d)) for task in scored.dev]))
    mrr = None
    rate = None
    if not setting.sts_only:
        mrr = search(setting, scored)
        if scored.timed:
            rate = speed(setting, scored.timed)
    row = Record(
        NO_WHITENING,
        model=setting.model,
        pooling="mean",
        whitening=setting.method,
        k=setting.k,
        n_fit=0,
        transductive=False,
        method=setting.method,
        tasks=Record(tasks),
        sts=float(np.mean(list(tasks.values()))),
        dev=dev,
        megabytes=setting.megabytes,
        mrr_at_10=mrr,
        sentences_per_second=rate,
        interval=None,
        versus=None,
        base=None,
    )
    return row, similarities


def search(setting: Setting, scored: Scored) -> float:
    """MRR@10 of an exact search by cosine."""
    index = build_index(np.asarray(setting.encode(scored.data.documents), np.float32), "faiss-flat")
    _, ids = index.search(np.asarray(setting.encode(scored.queries), np.float32), _FIRST)
    return metrics.reciprocal_ranks(ids, scored.gold, _FIRST).mean()


def speed(setting: Setting, texts: list[str]) -> float:
    """Sentences per second, text to vectors: the best of some repeats, after one that compiles."""
    if setting.method.startswith(TEACHER):
        texts = texts[:1000]
    times = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        setting.encode(texts)
        times.append(time.perf_counter() - start)
    return len(texts) / min(times[1:])


def with_intervals(rows: Sequence[Record], bases: Sequence[str | None], samples: np.ndarray) -> list[Record]:
    """Adds intervals of the STS average, and of its paired difference to the average of the base, to rows.

    `samples` are the averages [rows, resamples].
    """
    places = {(row.model, row.method, row.k): number for number, row in enumerate(rows)}
    complete = []
    for number, (row, base) in enumerate(zip(rows, bases, strict=True)):
        intervals: dict[str, object] = {"interval": with_ends(row.sts, samples[number])}
        if (base_row := places.get((row.model, base, row.k))) is not None:
            versus = with_ends(row.sts - rows[base_row].sts, samples[number] - samples[base_row])
            intervals |= {"versus": versus, "base": base}
        complete.append(Record(row | intervals))
    return complete


def make_header(config: Static, teacher: Encoder, scored: Scored) -> Record:
    """The header of the run."""
    return common.make_header(
        "eval.static",
        "Static encoders beside model2vec",
        config,
        teacher,
        common.encoding(0.0, len(scored.sentences)),
        dataset=common.dataset(scored.data, len(scored.queries)),
        tasks=tuple(task.name for task in scored.tasks),
        protocol={
            "corpus": f"sentences of {config.passages or 'all'} passages, of which the teacher reads"
            f" {config.sentences:,}",
            "dev": f"mean of the dev pairs of {config.dev}" * bool(config.dev) or "not run",
            "empty_sentence": EMPTY,
            "timed": f"{len(scored.timed):,} sentences, the teacher 1,000, best of {_REPEATS}",
        },
    )


__all__ = ["TABLES", "VIEWS", "evaluator", "main"]
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/static.py", Static)
