"""The results of an evaluation as typed rows with a header; `Run` stores them in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FORMAT_VERSION = 2
SIGNIFICANT = "∗"  # follows a significant difference; Markdown does not interpret this sign


@dataclass(frozen=True)
class Estimate:
    """A figure or a difference with its confidence interval; NaN if undefined."""

    value: float
    low: float
    high: float

    @property
    def mark(self) -> str:
        """`SIGNIFICANT` if the interval excludes 0, else a space."""
        return SIGNIFICANT if self.low > 0 or self.high < 0 else " "


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting; subclasses add its scores."""

    model: str
    pooling: str
    whitening: str  # "none", the text that the whitening was fitted on, or a name in `eval.methods`
    k: int
    beta: float | None  # of the whitening; 0 for raw vectors, None for another method
    gamma: float | None  # as for beta
    n_fit: int  # rows the method was fitted on
    transductive: bool  # whether it was fitted on the sentences it is tested on
    further: dict[str, float | str] | None = None  # parameters of the whitening that differ from their defaults

    @property
    def has_knobs(self) -> bool:
        """Whether β and γ apply: not to raw vectors or other methods."""
        return self.whitening != "none" and self.beta is not None

    @property
    def parameters(self) -> dict[str, str]:
        """β, γ and further parameters of the whitening as text, by symbol; empty if there are none."""
        values = {"β": self.beta, "γ": self.gamma, **(self.further or {})} if self.has_knobs else {}
        return {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()}

    @property
    def knobs(self) -> str:
        """The parameters as text to append to a setting's name; empty if there are none."""
        return "".join(f", {name}={value}" for name, value in self.parameters.items())

    @property
    def label(self) -> str:
        """The whitening, marked if it is transductive."""
        return self.whitening + " †" * self.transductive

    @property
    def name(self) -> str:
        """Pooling, whitening and k."""
        return f"{self.pooling}, {self.label}, k={self.k}"


@dataclass(frozen=True)
class Ranking:
    """How high the partners of similar pairs rank, × 100; see `eval.geometry.partner_ranks`."""

    queries: int
    hits_at_1: float
    hits_at_3: float
    mrr: float


@dataclass(frozen=True)
class TaskScores:
    """Spearman × 100 on one STS task; `low` and `high` are the interval of the displayed aggregate."""

    all: float
    mean: float
    wmean: float
    subsets: dict[str, float]
    n_fit: int
    low: float | None = None
    high: float | None = None
    ranking: Ranking | None = None

    def under(self, aggregate: str) -> float:
        """The score under one of the three aggregates."""
        return float(getattr(self, aggregate))


@dataclass(frozen=True)
class Geometry:
    """The geometry of the vectors of a row; see `eval.geometry`."""

    task: str
    n: int
    isoscore: float
    average_cosine: float
    effective_rank: float
    uniformity: float
    hubness: float
    alignment: float


@dataclass(frozen=True, kw_only=True)
class STSRow(Row):
    """One setting of `eval.sts`."""

    seconds: float  # for fitting, comparing and scoring, over all tasks
    fit_seconds: float
    bytes: int  # of one fitted method's file
    tasks: dict[str, TaskScores]
    geometry: Geometry | None = None
    average_interval: Estimate | None = None
    versus_raw: dict[str, Estimate] | None = None  # by task; "average" is the difference of their means
    versus_words: dict[str, Estimate] | None = None  # the same for the difference to TF-IDF

    def scores(self, aggregate: str) -> dict[str, float]:
        """The score of each task, and their mean as `"average"`, which is NaN if a score is undefined."""
        found = {name: scores.under(aggregate) for name, scores in self.tasks.items()}
        return found | {"average": sum(found.values()) / len(found)}

    def average(self, aggregate: str) -> float:
        """The mean score of the tasks under one aggregate."""
        return self.scores(aggregate)["average"]


@dataclass(frozen=True)
class Reranked:
    """Re-ranking of the first `depth` results by a cross-encoder, for some queries with gold.

    Means before and after, and their paired differences, by measure; `ms` is milliseconds per query in a batch.
    """

    model: str
    depth: int
    queries: int
    before: dict[str, float]
    after: dict[str, float]
    gain: dict[str, Estimate]
    ms: float


@dataclass(frozen=True, kw_only=True)
class RetrievalRow(Row):
    """One setting of `eval.retrieval` on one index; `versus_words` is the difference to TF-IDF."""

    backend: str
    options: dict[str, Any]
    mrr_at_10: float
    recall_at_1: float
    recall_at_10: float
    recall_at_100: float
    ndcg_at_10: float
    index_recall_at_10: float
    time_ms: float
    time_with_whitening_ms: float
    queries_per_second: float
    single_p50_ms: float
    single_p99_ms: float
    single_text_p50_ms: float
    single_text_p99_ms: float
    memory_gib: float
    index_bytes: int
    build_seconds: float
    peak_rss_gb: float | None
    mrr_interval: Estimate | None = None
    versus_raw: Estimate | None = None
    versus_words: Estimate | None = None
    reranked: Reranked | None = None


@dataclass(frozen=True, kw_only=True)
class CodeRow(Row):
    """One code of `eval.codes`; `whitening` names the fit, differences are × 100."""

    code: str
    bytes: int  # per document
    mrr_at_10: float
    recall_at_10: float
    ndcg_at_10: float
    build_us: float  # microseconds per document to fit or train, code and add
    rescored_mrr_at_10: float | None = None  # of the first results, rescored by float16 vectors
    rescored_versus_raw: Estimate | None = None  # difference of that to float32 vectors
    sts: float | None = None  # mean of the tasks, with both sides coded; None for codes that FAISS trains
    sts_versus_raw: Estimate | None = None  # difference of `sts` to float32 vectors
    float32_recall_at_10: float | None = None  # share of the first ten of float32 among the first ten
    participation_ratio: float | None = None  # in runs of version 0.1
    distortion: float | None = None  # expected share of the variance that a spectrum code loses
    bound: float | None = None  # Shannon's for any code of as many bytes
    versus_raw: Estimate | None = None  # difference of the MRR@10 to float32 vectors
    versus_spectrum: Estimate | None = None  # to the spectrum code of this fit with as many bytes, or the next more
    accuracy: dict[str, Estimate] | None = None  # of classified pairs by task, in per cent
    accuracy_versus_raw: dict[str, Estimate] | None = None  # difference of `accuracy` to float32 vectors


@dataclass(frozen=True, kw_only=True)
class StaticRow(Row):
    """One static encoder of `eval.static`, or its teacher."""

    method: str
    tasks: dict[str, float]  # score of each STS task
    sts: float  # their mean
    megabytes: float  # of the table of token vectors, or of the teacher's parameters in float32
    dev: float | None = None
    mrr_at_10: float | None = None  # None, like the next field, if only STS was measured for the row
    sentences_per_second: float | None = None
    interval: Estimate | None = None
    versus: Estimate | None = None
    base: str | None = None  # the method, of the same teacher and dimensions, that `versus` compares with


@dataclass(frozen=True, kw_only=True)
class UpgradeRow(Row):
    """One way of `eval.upgrade` to search an index of `model` by another encoder; `n_fit` are the pairs of a map."""

    new: str  # the other encoder
    method: str
    mrr_at_10: float
    candidates: int | None = None  # taken from the old index per query
    old_recall: float | None = None  # share of relevant documents among these candidates
    embedded: float | None = None  # texts embedded per query
    versus_stay: Estimate | None = None  # differences of the MRR@10, in points
    versus_everything: Estimate | None = None


@dataclass(frozen=True)
class Machine:
    """The machine of a run, and the peak memory of its process."""

    cores: int
    devices: int
    processes: int
    device_kind: str
    system: str
    peak_rss_gb: float | None


@dataclass(frozen=True)
class Encoding:
    """The time of encoding, and the numbers of unique sentences and NLI rows."""

    seconds: float
    sentences: int
    nli_rows: int
    note: str = ""


@dataclass(frozen=True)
class Published:
    """Published figures of a setting and those of this run, by name; `note` names the aggregate or the machine."""

    setting: str
    source: str
    citation: str
    note: str
    published: dict[str, float]
    ours: dict[str, float]

    @property
    def difference(self) -> dict[str, float]:
        """This run minus published, to two digits."""
        return {name: round(self.ours[name] - value, 2) for name, value in self.published.items()}


@dataclass(frozen=True, kw_only=True)
class Header:
    """How the rows were made; `protocol` is how the program measures, by part, as text for captions."""

    program: str
    title: str
    date: str
    model: str
    fingerprint: str
    dimension: int
    dtype: str
    seed: int
    machine: Machine
    encoding: Encoding
    versions: dict[str, str]
    config: dict[str, Any]
    protocol: dict[str, Any]
    warnings: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()
    complete: bool = False  # whether all rows are there
    seconds: float | None = None  # of the whole run, once it is complete
    resamples: int = 0  # of the bootstrap intervals at `level`; 0 for none
    level: float = 0.95
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class SimilarityFigure:
    """The setting of the heat map of similarities, and its first sentences with their human scores."""

    pooling: str
    whitening: str
    k: int
    task: str
    gold: tuple[float, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class STSHeader(Header):
    """`spectrum` names the sentences behind the spectra; `protocol["whitening"]` describes each fit."""

    program: str = "eval.sts"
    tasks: tuple[str, ...]
    aggregate: str
    sample: bool
    nli: tuple[str, ...] | None = None
    spectrum: str | None = None
    similarity: SimilarityFigure | None = None

    @property
    def scored(self) -> tuple[str, ...]:
        """Names of the scores of a row: the tasks, and `"average"` if there are several."""
        return (*self.tasks, *(["average"] if len(self.tasks) > 1 else []))


@dataclass(frozen=True)
class Dataset:
    """The data that was searched, with statistics from reading it."""

    name: str
    documents: int
    queries: int
    counts: dict[str, int]
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hit:
    """One document found for an example."""

    id: int
    score: float
    text: str | None = None


@dataclass(frozen=True)
class Example:
    """The first results of one query under one setting."""

    query: str
    pooling: str
    whitening: str
    k: int
    backend: str
    hits: tuple[Hit, ...]


@dataclass(frozen=True, kw_only=True)
class RetrievalHeader(Header):
    program: str = "eval.retrieval"
    dataset: Dataset
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CodesHeader(Header):
    program: str = "eval.codes"
    participation_ratio: float | None = None  # of the same vectors
    dataset: Dataset
    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StaticHeader(Header):
    program: str = "eval.static"
    dataset: Dataset
    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UpgradeHeader(Header):
    program: str = "eval.upgrade"
    dataset: Dataset
    advice: dict[str, str]  # by pair of encoders
