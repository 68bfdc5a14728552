"""Static encoders distilled from a teacher, compared with model2vec's: quality, speed and size.

`python -m eval.static [--config configs/static.py] [--config.key=value ...]`

Every setting is scored on the test pairs of the STS tasks, with paired intervals of its difference to model2vec at the
same dimensions. Writes `run.jsonl` and `results.md` to the folder `out`.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs import launch
from configs.settings import Static
from eval import common, measure
from eval.common import make_folder, say
from eval.data import STS_TASKS, load_sts
from eval.driver import driven
from eval.encoding import EMPTY
from eval.intervals import resampled, with_ends
from eval.report import Views
from eval.report.table import SIGNIFICANT, Table, bounds, change, figure, number, table
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, choices, integers, optional_choices, words
from eval.tasks import TaskIndex, index_sentences
from jaxwhiten import Encoder, metrics
from jaxwhiten.datasets import Corpus, RetrievalData, corpus_files
from jaxwhiten.encoding import Vocabulary, distil
from jaxwhiten.errors import InputError
from jaxwhiten.models import resolve_folder
from jaxwhiten.search import build_index

SAMPLE = "sts_sample"
TEACHER = "teacher"
PEER = "model2vec"
# Settings of `distil`: without a corpus, without the teacher's sentences, and with them.
OURS = {"zipf": {}, "whitened": {}, "rows": {"fit": True}}
PARTS = (TEACHER, PEER, *OURS)
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
    for name, teacher in zip(models, teachers, strict=True):
        for setting in settings(config, name, teacher, ks, text):
            row, similarity = score(setting, scored)
            run.rows.append(row)
            similarities.append(similarity)
            say(f"{row.model}, {row.method}, {row.k}: STS {row.sts:.2f}")
            yield run
    if config.bootstrap:
        samples = resampled(similarities, scored.tasks, "wmean", config)["average"]
        run.rows[:] = with_intervals(run.rows, samples)
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
    """The teacher, model2vec and ours at every size."""
    parts = words("parts", config.parts)
    if TEACHER in parts:
        yield Setting(name, TEACHER, teacher.dimension, teacher.encode, 4e-6 * teacher.config.parameters)
    if PEER in parts:
        yield from (peer(name, k) for k in ks)
    vocabulary = Vocabulary.read(teacher, text, sentences=config.sentences, seed=config.seed)
    for k, method in itertools.product(ks, [method for method in OURS if method in parts]):
        counted = Vocabulary.read(teacher) if method == "zipf" else vocabulary
        static = distil(counted, k, **OURS[method])
        yield Setting(name, method, k, static.encode, 4e-6 * k * static.config.vocab_size)


def peer(name: str, k: int) -> Setting:
    """model2vec's own distillation, with its defaults except the size; float32, so that bytes are comparable."""
    from model2vec.distill import distill

    model = distill(str(resolve_folder(name)), pca_dims=k, device="cpu", quantize_to="float32")
    return Setting(name, PEER, k, measure.keeping_tokenizer_threads(model.encode), model.embedding.nbytes / 1e6)


def score(setting: Setting, scored: Scored) -> tuple[Record, dict[str, np.ndarray]]:
    """A row, and the similarities of the test pairs of every task."""
    x = setting.encode(scored.sentences)
    similarities = {task.name: task.similarity(x) for task in scored.tasks}
    tasks = {task.name: task.score(similarities[task.name]) for task in scored.tasks}
    dev = None
    if scored.dev:
        d = setting.encode(scored.dev_sentences)
        dev = float(np.mean([task.score(task.similarity(d)) for task in scored.dev]))
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
        mrr_at_10=search(setting, scored),
        sentences_per_second=speed(setting, scored.timed) if scored.timed else None,
        interval=None,
        versus=None,
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


def with_intervals(rows: Sequence[Record], samples: np.ndarray) -> list[Record]:
    """Adds intervals of the STS average, and of its paired difference to model2vec at the same dimensions, to rows.

    `samples` are the averages [rows, resamples].
    """
    peers = {(row.model, row.k): place for place, row in enumerate(rows) if row.method == PEER}
    complete = []
    for place, row in enumerate(rows):
        versus = None
        base = peers.get((row.model, row.k))
        if base is not None and row.method in OURS:
            versus = with_ends(row.sts - rows[base].sts, samples[place] - samples[base])
        complete.append(row.but(interval=with_ends(row.sts, samples[place]), versus=versus))
    return complete


def sizes_table(run: Run) -> Table:
    """Every method at every size, with its difference to model2vec."""
    header = run.header
    caption = (
        f"STS: mean of {', '.join(header.tasks)} (wmean), test pairs; dev: {header.protocol['dev']}. Difference: of STS"
        f" to model2vec at the same dimensions. MRR@10 x 100: {header.dataset.name}. sentences/s:"
        f" {header.protocol['timed']}. Corpus: {header.protocol['corpus']}. {SIGNIFICANT}: its {header.level:.0%}"
        " interval leaves out 0 (paired bootstrap over pairs)."
    )
    columns = {
        "teacher": "model",
        "method": "method",
        "k": "k",
        "STS": figure("sts"),
        "dev": figure("dev"),
        "MRR@10": lambda row: number(None if row.mrr_at_10 is None else 100 * row.mrr_at_10),
        "sentences/s": figure("sentences_per_second", 0),
        "MB": figure("megabytes", 1),
        "difference": lambda row: change(row.versus),
        "interval": lambda row: bounds(row.versus, signed=True) if row.versus else "",
    }
    return table(run.rows, columns, 2, caption, group=["model"], key_columns=3)


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


TABLES = {"sizes_table": sizes_table}
main = driven(evaluator, Views({"Sizes": sizes_table}, {}))

if __name__ == "__main__":
    launch.run(main, "configs/static.py", Static)
