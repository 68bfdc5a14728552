"""What an evaluation finds, as typed rows under a header; `Run` keeps them in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxwhiten.report.protocols import CodesProtocol, RetrievalProtocol, StaticProtocol, STSProtocol

FORMAT_VERSION = 2
SIGNIFICANT = "∗"  # beside a difference that is more than chance; Markdown leaves this sign alone


@dataclass(frozen=True)
class Estimate:
    """A figure or a difference with its confidence interval; NaN where undefined."""

    value: float
    low: float
    high: float

    @property
    def mark(self) -> str:
        """`SIGNIFICANT` where the interval leaves out 0, a space elsewhere."""
        return SIGNIFICANT if self.low > 0 or self.high < 0 else " "


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting; what it scored is in the subclasses."""

    model: str
    pooling: str
    whitening: str  # "none", what the whitening was fitted on, or a name in `jaxwhiten.methods`
    k: int
    beta: float | None  # of the whitening; 0 for raw vectors, None for another method
    gamma: float | None  # likewise
    n_fit: int  # rows the method was fitted on
    transductive: bool  # whether it was fitted on the sentences it is tested on
    further: dict[str, float | str] | None = None  # parameters of the whitening that are not at their defaults

    @property
    def has_knobs(self) -> bool:
        """Whether β and γ mean something: not for raw vectors and other methods."""
        return self.whitening != "none" and self.beta is not None

    @property
    def parameters(self) -> dict[str, str]:
        """β, γ and further parameters of the whitening as text, by their signs; empty where there are none."""
        values = {"β": self.beta, "γ": self.gamma, **(self.further or {})} if self.has_knobs else {}
        return {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()}

    @property
    def knobs(self) -> str:
        """The parameters, to be put behind a setting's name; empty where there are none."""
        return "".join(f", {name}={value}" for name, value in self.parameters.items())

    @property
    def label(self) -> str:
        """The whitening, with a sign where it is transductive."""
        return self.whitening + " †" * self.transductive

    @property
    def name(self) -> str:
        """Pooling, whitening and k."""
        return f"{self.pooling}, {self.label}, k={self.k}"


@dataclass(frozen=True)
class Ranking:
    """How high the partners of similar pairs rank, in points; see `jaxwhiten.metrics.partner_ranks`."""

    queries: int
    hits_at_1: float
    hits_at_3: float
    mrr: float


@dataclass(frozen=True)
class TaskScores:
    """Spearman × 100 of one STS task; `low` and `high` are the interval of the aggregate shown."""

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
    """The shape of the vectors behind a row; see `jaxwhiten.metrics.geometry`."""

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

    seconds: float  # of fitting, comparing and scoring, over all tasks
    fit_seconds: float
    bytes: int  # of one fitted method's file
    tasks: dict[str, TaskScores]
    geometry: Geometry | None = None
    average_interval: Estimate | None = None
    versus_raw: dict[str, Estimate] | None = None  # by task, and under "average" for their mean
    versus_words: dict[str, Estimate] | None = None  # likewise, the difference to TF-IDF

    def scores(self, aggregate: str) -> dict[str, float]:
        """The score of each task, and under `"average"` their mean; NaN where one of them is undefined."""
        found = {name: scores.under(aggregate) for name, scores in self.tasks.items()}
        return found | {"average": sum(found.values()) / len(found)}

    def average(self, aggregate: str) -> float:
        """The mean of the tasks under one aggregate."""
        return self.scores(aggregate)["average"]


@dataclass(frozen=True)
class Reranked:
    """What a cross-encoder makes of the first `depth` results of some queries with gold.

    By measure the means before and after, and their paired differences; `ms` are milliseconds per query in a batch.
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
    """One code of `eval.codes`; `whitening` is what it was fitted on, differences are in points."""

    code: str
    bytes: int  # per document
    mrr_at_10: float
    recall_at_10: float
    ndcg_at_10: float
    build_us: float  # microseconds per document to fit or train, code and add
    search_ms: float
    rescored_mrr_at_10: float | None = None  # of the first results, scored again by float16 vectors
    sts: float | None = None  # mean of the tasks on sentences coded on both sides; None for codes that FAISS trains
    sts_versus_raw: Estimate | None = None  # difference of that to float32 vectors
    isoscore: float | None = None  # of the vectors that it was fitted on
    usual_gamma: float | None = None  # the γ that `SpectrumCode` would take of itself
    spectemp: float | None = None  # SpecTemp's γ for its k columns
    versus_raw: Estimate | None = None  # difference of the MRR@10 to float32 vectors
    versus_spectrum: Estimate | None = None  # to the spectrum code of the fit with as many bytes, or else the next more
    accuracy: dict[str, Estimate] | None = None  # of classified pairs by task, in per cent
    accuracy_versus_raw: dict[str, Estimate] | None = None  # difference of that to float32 vectors


@dataclass(frozen=True, kw_only=True)
class StaticRow(Row):
    """One static encoder of `eval.static`, or its teacher."""

    method: str
    tasks: dict[str, float]  # score of each STS task
    sts: float  # their mean
    megabytes: float  # of the table of token vectors, or of the teacher's parameters in float32
    dev: float | None = None
    mrr_at_10: float | None = None  # None where a row is there for its STS only, like the next
    sentences_per_second: float | None = None
    interval: Estimate | None = None
    versus: Estimate | None = None
    base: str | None = None  # the method of the same teacher and dimensions that `versus` is the difference to


@dataclass(frozen=True, kw_only=True)
class UpgradeRow(Row):
    """One way of `eval.upgrade` to search an index of `model` by another encoder; `n_fit` are the pairs of a map."""

    new: str  # the other encoder
    method: str
    mrr_at_10: float
    candidates: int | None = None  # of the old index per query, on read
    old_recall: float | None = None  # of the documents wanted, among so many candidates
    embedded: float | None = None  # texts per query
    versus_stay: Estimate | None = None  # differences of the MRR@10, in points
    versus_everything: Estimate | None = None


@dataclass(frozen=True)
class Machine:
    """Where a run was made, and the most memory its process held."""

    cores: int
    devices: int
    processes: int
    device_kind: str
    system: str
    peak_rss_gb: float | None


@dataclass(frozen=True)
class Encoding:
    """How long encoding took, and of how many unique sentences and NLI rows."""

    seconds: float
    sentences: int
    nli_rows: int
    note: str = ""


@dataclass(frozen=True)
class Published:
    """Published figures of a setting beside those of this run, by name; `note` is the aggregate or the machine."""

    setting: str
    source: str
    citation: str
    note: str
    published: dict[str, float]
    ours: dict[str, float]

    @property
    def difference(self) -> dict[str, float]:
        """Ours minus published, to two digits."""
        return {name: round(self.ours[name] - value, 2) for name, value in self.published.items()}


@dataclass(frozen=True, kw_only=True)
class Header:
    """What produced the rows. Each program's own has its `protocol`, too: how it measures, in words for captions."""

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
    warnings: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()
    complete: bool = False  # whether the last row is there
    seconds: float | None = None  # of the whole run, when it is complete
    resamples: int = 0  # of the bootstrap intervals, which hold `level` of them; 0 for none
    level: float = 0.95
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class SimilarityFigure:
    """What the heat map of similarities shows: the setting, and the first sentences with their human scores."""

    pooling: str
    whitening: str
    k: int
    task: str
    gold: tuple[float, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class STSHeader(Header):
    """`spectrum` names the sentences of the spectra in the figures, `protocol["whitening"]` what each was fitted on."""

    program: str = "eval.sts"
    tasks: tuple[str, ...]
    aggregate: str
    sample: bool
    protocol: STSProtocol
    nli: tuple[str, ...] | None = None
    spectrum: str | None = None
    similarity: SimilarityFigure | None = None

    @property
    def scored(self) -> tuple[str, ...]:
        """What a row has a score for: the tasks, and of several their `"average"`."""
        return (*self.tasks, *(["average"] if len(self.tasks) > 1 else []))


@dataclass(frozen=True)
class Dataset:
    """What was searched, and what was met on reading it."""

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
    protocol: RetrievalProtocol
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CodesHeader(Header):
    program: str = "eval.codes"
    isoscore: float | None = None  # of the encoder's vectors of the sentences that ship with the package
    dataset: Dataset
    tasks: tuple[str, ...]
    protocol: CodesProtocol


@dataclass(frozen=True, kw_only=True)
class StaticHeader(Header):
    program: str = "eval.static"
    dataset: Dataset
    tasks: tuple[str, ...]
    protocol: StaticProtocol


@dataclass(frozen=True, kw_only=True)
class UpgradeHeader(Header):
    program: str = "eval.upgrade"
    dataset: Dataset
    protocol: dict[str, str]
    advice: dict[str, str]  # by pair of encoders
