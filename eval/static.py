"""Static encoders distilled from a teacher, compared with model2vec's.

`python -m eval.static [--config configs/static.py] [--config.key=value ...]`

Every setting is scored on the test pairs of the STS tasks, with paired intervals of its difference to model2vec at the
same dimensions. Writes `run.jsonl` and `results.md` to the folder `out`.
"""

from __future__ import annotations

import itertools
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
from eval.report.table import SIGNIFICANT, Table, bounds, change, figure, table
from eval.runs import Record, Run
from eval.settings import NO_WHITENING, choices, integers, words
from eval.tasks import TaskIndex, index_sentences
from jaxwhiten import Encoder
from jaxwhiten.datasets import Corpus, corpus_files
from jaxwhiten.encoding import Vocabulary, distil
from jaxwhiten.errors import InputError
from jaxwhiten.models import resolve_folder

SAMPLE = "sts_sample"
TEACHER = "teacher"
PEER = "model2vec"
# Settings of `distil`: without a corpus, without the teacher's sentences, and with them.
OURS = {"zipf": {}, "whitened": {}, "rows": {"fit": True}}
PARTS = (TEACHER, PEER, *OURS)


@dataclass(frozen=True)
class Scored:
    """The data on which every setting is scored."""

    sentences: list[str]
    tasks: list[TaskIndex]


@dataclass(frozen=True)
class Setting:
    """An encoder to be scored."""

    model: str
    method: str
    k: int
    encode: Callable[[list[str]], np.ndarray]


def evaluator(config: Static) -> Iterator[Run]:
    """The run after each setting."""
    models = words("models", config.models)
    poolings = words("poolings", config.poolings)
    if len(models) != len(poolings):
        raise InputError(f"config.poolings: give one for each of {len(models)} teachers.")
    ks = integers("ks", config.ks)
    tasks = choices("tasks", config.tasks, (*STS_TASKS, SAMPLE))
    choices("parts", config.parts, PARTS)
    make_folder(Path(config.out))
    if not config.corpus:
        raise InputError("config.corpus is empty: name a file or folder of text, one passage per line.")
    teachers = [Encoder.from_pretrained(m, pooling=p, bare=True) for m, p in zip(models, poolings, strict=True)]
    text = list(sentences_of(config.corpus, config.passages))
    scored = read(config, tasks)

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


def read(config: Static, tasks: Sequence[str]) -> Scored:
    """The test pairs of the tasks."""
    return Scored(*index_sentences([load_sts(name, config.data_dir or None) for name in tasks], test_only=True))


def settings(config: Static, name: str, teacher: Encoder, ks: Sequence[int], text: list[str]) -> Iterator[Setting]:
    """The teacher, model2vec and ours at every size."""
    parts = words("parts", config.parts)
    if TEACHER in parts:
        yield Setting(name, TEACHER, teacher.dimension, teacher.encode)
    if PEER in parts:
        yield from (peer(name, k) for k in ks)
    vocabulary = Vocabulary.read(teacher, text, sentences=config.sentences, seed=config.seed)
    for k, method in itertools.product(ks, [method for method in OURS if method in parts]):
        counted = Vocabulary.read(teacher) if method == "zipf" else vocabulary
        static = distil(counted, k, **OURS[method])
        yield Setting(name, method, k, static.encode)


def peer(name: str, k: int) -> Setting:
    """model2vec's own distillation, with its defaults except the size; float32, so that bytes are comparable."""
    from model2vec.distill import distill

    model = distill(str(resolve_folder(name)), pca_dims=k, device="cpu", quantize_to="float32")
    return Setting(name, PEER, k, measure.keeping_tokenizer_threads(model.encode))


def score(setting: Setting, scored: Scored) -> tuple[Record, dict[str, np.ndarray]]:
    """A row, and the similarities of the test pairs of every task."""
    x = setting.encode(scored.sentences)
    similarities = {task.name: task.similarity(x) for task in scored.tasks}
    tasks = {task.name: task.score(similarities[task.name]) for task in scored.tasks}
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
        interval=None,
        versus=None,
    )
    return row, similarities


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
        f"STS: mean of {', '.join(header.tasks)} (wmean), test pairs. Difference: of STS to model2vec at the same"
        f" dimensions. Corpus: {header.protocol['corpus']}. {SIGNIFICANT}: its {header.level:.0%}"
        " interval leaves out 0 (paired bootstrap over pairs)."
    )
    columns = {
        "teacher": "model",
        "method": "method",
        "k": "k",
        "STS": figure("sts"),
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
        tasks=tuple(task.name for task in scored.tasks),
        protocol={
            "corpus": f"sentences of {config.passages or 'all'} passages, of which the teacher reads"
            f" {config.sentences:,}",
            "empty_sentence": EMPTY,
        },
    )


TABLES = {"sizes_table": sizes_table}
main = driven(evaluator, Views({"Sizes": sizes_table}, {}))

if __name__ == "__main__":
    launch.run(main, "configs/static.py", Static)
