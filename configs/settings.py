"""What a program takes: a dataclass of settings, of which a config file changes some and the command line others.

A config file is a function `get_config` that makes one and assigns to its fields. `--help` of a program shows every
field with its default and its help. In lists, items are separated by commas.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from jaxwhiten.errors import InputError, check_name, unknown_name
from jaxwhiten.options import TrainingOptions, WhiteningParameters

WHITENING = {field.name: field for field in dataclasses.fields(WhiteningParameters)}


def setting(default: Any, help: str) -> Any:
    """A field with its default and its help."""
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata={"help": help})
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(slots=True)
class Config:
    """The base of the settings of every program; a name that is no field cannot be assigned to."""

    def update(self, changes: Mapping[str, Any]) -> None:
        """Sets values by their keys, such as `"data.name"`; InputError for an unknown key."""
        fields = keys(self)
        for key, value in changes.items():
            if key not in fields:
                raise unknown_name("config key", key, fields)
            fields[key].put(value)

    def read(self, texts: Mapping[str, str]) -> None:
        """Sets values by their keys, as text; InputError for an unknown key or a value of another type."""
        fields = keys(self)
        for key, text in texts.items():
            if key not in fields:
                raise unknown_name("config key", key, fields)
            fields[key].put(fields[key].parse(key, text))


class Key(NamedTuple):
    """One value of a config, and where it lies."""

    owner: Any  # a Config, or a dictionary in one
    name: str
    value: Any
    type: str
    help: str

    @property
    def is_section(self) -> bool:
        """Whether it has keys of its own."""
        return isinstance(self.value, Config | dict)

    def put(self, value: Any) -> None:
        """Sets the value."""
        if isinstance(self.owner, dict):
            self.owner[self.name] = value
        else:
            setattr(self.owner, self.name, value)

    def parse(self, key: str, text: str) -> Any:
        """The value that a text stands for; InputError if it stands for none of the type."""
        kind, _, optional = self.type.partition(" | ")
        if optional and text.lower() == "none":
            return None
        if kind not in READERS:
            raise InputError(f"config.{key} is a section: set its keys, such as config.{key}.NAME, see --help.")
        reader, expected = READERS[kind]
        try:
            return reader(text)
        except (ValueError, SyntaxError):
            raise InputError(f"config.{key}: expected {expected}, got {text!r}: see --help.") from None


def keys(config: Config) -> dict[str, Key]:
    """The values of a config by their keys, such as `"data.name"`, with sections such as `"data"`."""
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        help = field.metadata.get("help", "")
        values[field.name] = Key(config, field.name, value, str(field.type).partition("[")[0], help)
        if isinstance(value, Config):
            values |= {f"{field.name}.{key}": inner for key, inner in keys(value).items()}
        elif isinstance(value, dict):
            items = value.items()
            values |= {f"{field.name}.{key}": Key(value, key, item, type(item).__name__, "") for key, item in items}
    return values


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return text.lower() in ("true", "1")


def _tuple(text: str) -> tuple[Any, ...]:
    value = ast.literal_eval(text)
    if isinstance(value, tuple | list):
        return tuple(value)
    return (value,)


# By the type of a field; `Sequence` as TrainingOptions has it.
READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "str": (str, "a text"),
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "bool": (_boolean, "True or False"),
    "tuple": (_tuple, "a tuple such as ('a','b')"),
    "Sequence": (_tuple, "a tuple such as ('a','b')"),
}


def _knob(name: str) -> Any:
    """A parameter of a whitening, as text: one value or several."""
    knob = WHITENING[name]
    return setting("none" if knob.default is None else f"{knob.default:g}", knob.metadata["help"])


ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
SEVEN_TASKS = "STS12,STS13,STS14,STS15,STS16,STS-B,SICK-R"
FOLDERS_LENGTH = "tokens, special tokens counted; 0 for the model folder's own limit"


@dataclasses.dataclass(slots=True)
class Scored(Config):
    """The settings that all evaluations share."""

    bootstrap: int = setting(2000, "resamples of the bootstrap intervals; 0 for none")
    seed: int = setting(0, "of what is drawn, and of the resamples")
    data_dir: str = setting("", "where the data lies; empty for $JAXWHITEN_DATA_DIR, or a download")
    out: str = setting("runs", "folder for the results")


@dataclasses.dataclass(slots=True)
class Evaluation(Scored):
    """The settings that all evaluations of one encoder share."""

    model: str = setting(ENCODER, "a hub id or a local folder")
    revision: str = setting("", "commit, tag or branch on the hub; empty for the newest")
    max_length: int = setting(0, FOLDERS_LENGTH)
    dtype: str = setting("float32", "or bfloat16: what matrix products run in")
    engine: str = setting("jax", "or openvino, on CPUs")


@dataclasses.dataclass(slots=True)
class Whitened(Evaluation):
    """The settings of a table of poolings and whitenings; β, γ and the like may have several values."""

    poolings: str = setting(
        "mean,first_last_avg",
        "names of jaxwhiten.POOLINGS, and layers:I+J, layers:*, ditto:LAYER+HEAD, promptbert and idf",
    )
    whitening: str = setting("none,target", "none; target: fitted on the task's own texts (transductive); or nli")
    ks: str = setting("0,256,128", "dimensions kept; 0 is the model's own")
    beta: str = _knob("beta")
    gamma: str = _knob("gamma")
    shrinkage: str = _knob("shrinkage")
    eigenvalue_floor: str = _knob("eigenvalue_floor")
    max_length: int = setting(64, "tokens, special tokens counted, as in the paper; 0 for the model folder's own limit")
    batch_size: int = setting(0, "sentences per batch at most; 0 leaves it to the encoder")


@dataclasses.dataclass(slots=True)
class STS(Whitened):
    """The settings of eval.sts."""

    poolings: str = setting(
        "cls,mean,first_last_avg,embeddings_last_avg,last2avg",
        "names of jaxwhiten.POOLINGS, and layers:I+J, layers:*, ditto:LAYER+HEAD, promptbert and idf",
    )
    whitening: str = setting(
        "none,target,nli",
        "none; target: fitted on the task's own sentences (transductive); nli: fitted on NLI sentences",
    )
    methods: str = setting(
        "", "methods other than whitening, by their names in eval.methods, fitted like target; empty for none"
    )
    baselines: str = setting("", "controls without the encoder, fitted like the whitenings: tfidf, bm25; empty: none")
    tasks: str = setting(SEVEN_TASKS, "or sts_sample, the pairs that ship with the package")
    aggregate: str = setting("wmean", "shown in the table; or mean, all: all three are stored")
    bootstrap: int = setting(1000, "resamples of the bootstrap intervals; 0 for none")
    out: str = setting("runs/sts", "folder for the results")


@dataclasses.dataclass(slots=True)
class Retrieval(Whitened):
    """The settings of eval.retrieval."""

    dataset: str = setting(
        "quora",
        "quora, mrpc, pydocs, a search of eval/searches.py, a folder as BEIR's, or a file (docs/guides/score.md)",
    )
    whitening: str = setting(
        "none,target",
        "none; target: fitted on documents and queries (transductive); documents: on these alone; nli: on NLI"
        " sentences",
    )
    backends: str = setting("faiss-ivf,jax", "also faiss-flat, faiss-gpu-flat, faiss-gpu-ivf")
    nlist: int = setting(1024, "inverted lists; lowered with a note where the documents are too few")
    nprobe: int = setting(5, "inverted lists visited per query")
    exact_queries: int = setting(10_000, "searched exactly as well, for an index's recall; 0 for all")
    single_queries: int = setting(200, "searched one by one, for the median and the 99th percentile")
    bootstrap: int = setting(10_000, "resamples of the bootstrap intervals of the MRR; 0 for none")
    rerank: str = setting("", "folder of a cross-encoder that re-ranks the first results; empty for none")
    rerank_depth: int = setting(100, "results that it re-ranks")
    rerank_queries: int = setting(1000, "queries with gold whose results it re-ranks; 0 for all")
    cache: str = setting("", "folder of the embedding cache; empty for the default one")
    out: str = setting("runs/quora", "folder for the results")


@dataclasses.dataclass(slots=True)
class Codes(Evaluation):
    """The settings of eval.codes."""

    pooling: str = setting("auto", "the folder's own, or one of jaxwhiten.POOLINGS")
    dataset: str = setting("snli", "a name of eval/searches.py, a file or a folder")
    queries: int = setting(3000, "of those with gold, spread evenly; 0 for all")
    seeds: int = setting(5, "sets of codebooks of the spectrum code, over which scores are averaged")
    gamma: str = setting(
        "auto", "γ of whitenings before the codes, or none; auto: none for fine-tuned encoders, else 1"
    )
    codes: str = setting("spectrum,pq,opq,rabitq,turbovec,int8,ubinary", "what is compared")
    bytes: str = setting("24,48,96", "per vector")
    rescore: int = setting(
        40,
        "first results scored again by float16 vectors, four times ten as sentence-transformers does; 0 for none",
    )
    cache: str = setting("", "folder of the embedding cache; empty for the default one")
    out: str = setting("runs/tasks", "folder for the results")


@dataclasses.dataclass(slots=True)
class Hybrid(Evaluation):
    """The settings of eval.hybrid."""

    pooling: str = setting("auto", "the folder's own, or one of jaxwhiten.POOLINGS")
    dataset: str = setting("mrpc", "a name of eval/searches.py, a file or a folder")
    bytes: str = setting("0,96,48", "of the vectors; 0 for float32")
    queries: int = setting(1000, "of those with gold, spread evenly; 0 for all")
    cache: str = setting("", "folder of the embedding cache; empty for the default one")
    out: str = setting("runs/hybrid", "folder for the results")


@dataclasses.dataclass(slots=True)
class Static(Scored):
    """The settings of eval.static."""

    models: str = setting(f"{ENCODER},jaxwhiten-tiny", "teachers: hub ids or local folders")
    poolings: str = setting("auto,first_last_avg", "of each teacher in turn")
    ks: str = setting("256,128,64", "dimensions")
    corpus: str = setting("", "a file, folder or pattern of text, one passage per line")
    passages: int = setting(100_000, "of them whose tokens are counted; 0 for all")
    sentences: int = setting(20_000, "drawn from these, which the teacher reads")
    parts: str = setting(
        "teacher,model2vec,zipf,whitened,rows",
        "what is scored: the teacher; model2vec, which distils the same teachers and has to be installed; ours",
    )
    tasks: str = setting(SEVEN_TASKS, "scored on their test pairs")
    out: str = setting("runs/static", "folder for the results")


@dataclasses.dataclass(slots=True)
class BEIR(Evaluation):
    """The settings of eval.beir."""

    check: bool = setting(False, "whether raw vectors are scored by sentence-transformers and pytrec_eval, too")
    out: str = setting("runs/beir", "folder for the results")


def _options(name: str, without: Collection[str] = ()) -> type[Config]:
    """A config with the fields of `jaxwhiten.TrainingOptions`; programs hold rows out themselves."""
    fields: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(TrainingOptions):
        if field.name in without or field.name == "held_out":
            continue
        default = field.default
        if default is dataclasses.MISSING:
            default = {}
        kind = "dict" if default == {} else field.type
        fields.append((field.name, kind, setting(default, field.metadata["help"])))
    return dataclasses.make_dataclass(name, fields, bases=(Config,), slots=True)


_OF_ROWS = ("negatives", "miner", "depth")
_OF_OBJECTIVES = ("settings", "dims", "weights")
_OF_TEACHERS = ("teacher", "teacher_pooling", "teacher_gamma")
_OF_LORA = ("lora", "lora_projections", "lora_alpha")


@dataclasses.dataclass(slots=True)
class Data(Config):
    """What a training reads: a name, or a file."""

    name: str = setting("nli", "nli, or an STS task with a train split (STS-B, SICK-R)")
    folder: str = setting("", "location of the data; empty is $JAXWHITEN_DATA_DIR, or the downloads")
    sources: tuple[str, ...] = setting((), "files of the NLI data by name; () is all")
    exclude_overlap: bool = setting(True, "skip NLI lines that contain a sentence of an evaluation set")
    file: str = setting("", "a TSV, CSV, JSON-lines, Parquet or text file of your own, instead of a name")
    columns: tuple[str, ...] = setting(
        (), "its columns of sentences, in the order the objective takes them; () is usual names"
    )
    split_sentences: bool = setting(False, "of a text file (.txt, .txt.gz, a folder of them), read without columns")
    label: str = setting("", "its column of classes or scores")
    classes: tuple[str, ...] = setting((), "the classes as written in the file")
    score_range: tuple[float, ...] = setting((0.0, 5.0), "the scores that become 0 and 1")
    skip_bad_rows: bool = setting(False, "skip and count invalid rows, instead of stopping")
    held_out: float = setting(0.0, "share of pairs kept for a test, in held_out.tsv; no sentence is on both sides")
    limit: int = setting(0, "rows drawn at random; 0 is all")


@dataclasses.dataclass(slots=True)
class SBERT(_options("SBERTOptions")):  # type: ignore[misc]
    """The settings of train.sbert: the options of the training, the encoder, and the data."""

    model: str = setting("bert-base-uncased", "a folder or a Hugging Face model ID")
    pooling: str = setting("auto", "the folder's pooling and modules, or mean if it has none; or mean, cls, max")
    max_length: int = setting(0, "tokens, special tokens included; 0 is the folder's, or 128 if it has none")
    objective: str = setting("softmax", "a name in train/objectives.py")
    adapter: str = setting("", "linear or bottleneck: trained on the frozen encoder's vectors, instead of the encoder")
    adapter_rank: int = setting(8, "of a bottleneck")
    data: Data = dataclasses.field(default_factory=Data)
    batch_size: int = setting(16, "rows per batch, over all devices; Sentence-BERT's")
    evaluate_every: int = setting(1000, "steps between evaluations; 0 for ten per run")
    dev: str = setting("STS-B", "scored on its dev split to find the best checkpoint; empty for none")
    test: tuple[str, ...] = setting(("STS-B",), "scored on their test splits at the end")
    output: str = setting("runs/sbert", "folder of checkpoints, logs, results and the model")


@dataclasses.dataclass(slots=True)
class Stages(Config):
    """Two runs of train.sbert, one after the other."""

    nli: SBERT
    stsb: SBERT
    stages: tuple[str, ...] = setting(("nli", "stsb"), "the runs, in their order")

    def runs(self) -> list[SBERT]:
        """The settings of each run; InputError for an unknown stage."""
        for name in self.stages:
            check_name("stage", name, ("nli", "stsb"))
        return [getattr(self, name) for name in self.stages]


@dataclasses.dataclass(slots=True)
class CrossData(Data):
    """What train.cross reads."""

    exclude: str = setting("", "retrieval data (quora, mrpc, a file) none of whose texts is trained on")


@dataclasses.dataclass(slots=True)
class Cross(_options("CrossOptions", (*_OF_OBJECTIVES, *_OF_TEACHERS, *_OF_LORA))):  # type: ignore[misc]
    """The settings of train.cross."""

    model: str = setting(ENCODER, "a folder or a Hugging Face model ID: an encoder, or a cross-encoder")
    max_length: int = setting(128, "tokens of a pair, special tokens counted")
    labels: str = setting("classes", "classes, scores, or positives: all pairs belong together")
    data: CrossData = dataclasses.field(default_factory=CrossData)
    batch_size: int = setting(32, "pairs, over all devices")
    learning_rate: float = setting(5e-5, "peak value, after the warm-up")
    dev: str = setting("", "scored to find the best checkpoint: an STS task, or an NLI source; empty for none")
    test: tuple[str, ...] = setting(
        (), "scored before and after: accuracy of classes, Spearman's correlation of scores"
    )
    evaluate_every: int = setting(0, "steps between evaluations; 0 for ten per run")
    save_every: int = setting(200, "steps between additional checkpoints; 0 for none")
    output: str = setting("runs/cross", "folder of checkpoints, logs, results and the model")


@dataclasses.dataclass(slots=True)
class Sizes(Config):
    """An encoder with random weights."""

    model_type: str = setting("bert", "family of the encoder")
    num_layers: int = setting(4, "layers")
    hidden_size: int = setting(256, "width of the vectors")
    num_heads: int = setting(4, "attention heads of a layer")
    intermediate_size: int = setting(1024, "width of the feed-forward part")
    max_positions: int = setting(128, "longest input in tokens")


@dataclasses.dataclass(slots=True)
class Vocabulary(Config):
    """A vocabulary, which is trained where the model brings none."""

    size: int = setting(8192, "tokens of the vocabulary")
    alphabet: int = setting(300, "characters kept, the most frequent")
    min_frequency: int = setting(2, "how often a word piece occurs at least")
    lower_case: bool = setting(True, "lower-case the text, as BERT's uncased vocabularies do")


@dataclasses.dataclass(slots=True)
class Mask(Config):
    """What is masked."""

    share: float = setting(0.15, "of the tokens, in whole words")
    masked: float = setting(0.8, "of those: become [MASK]")
    random: float = setting(0.1, "of those: become a random token; the rest stay")


_UNUSED = ("buckets", *_OF_ROWS, *_OF_OBJECTIVES, *_OF_TEACHERS, *_OF_LORA)


@dataclasses.dataclass(slots=True)
class MLM(_options("MLMOptions", _UNUSED)):  # type: ignore[misc]
    """The settings of train.mlm."""

    data: str = setting("", "text, one passage per line, plain or gzip: a file, a folder, or a pattern with *")
    skip_bad_rows: bool = setting(False, "skip and count lines that are not UTF-8 text, instead of stopping")
    held_out: float = setting(0.01, "fraction of the passages to hold out")
    model: str = setting("", "a folder or a Hugging Face model ID to continue from; empty starts from random weights")
    sizes: Sizes = dataclasses.field(default_factory=Sizes)
    vocabulary: Vocabulary = dataclasses.field(default_factory=Vocabulary)
    block_length: int = setting(128, "tokens")
    mask: Mask = dataclasses.field(default_factory=Mask)
    dtype: str = setting("auto", "float32 on CPU, bfloat16 elsewhere; or one of the two")
    dropout: float | None = setting(None, "in this training; none: the model's own rates")
    batch_size: int = setting(64, "blocks, over all devices")
    learning_rate: float = setting(1e-4, "peak value, after the warm-up")
    warmup: float = setting(0.05, "fraction of the steps in which the learning rate rises")
    b2: float = setting(0.98, "Adam's second decay rate")
    eps: float = setting(1e-6, "Adam's small constant")
    evaluate_every: int = setting(1000, "steps between evaluations; 0 for ten per run")
    evaluate_blocks: int = setting(512, "held-out blocks scored while training; at the end it is all of them")
    export_dtype: str = setting("float32", "of the weights in the exported folder; or float16")
    output: str = setting("runs/mlm", "folder of checkpoints, logs, results and the model")
