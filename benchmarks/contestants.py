"""The contestants of the benchmarks: encoders, from a job to a function of texts; indexes, from vectors to a search.

A contestant whose packages are not installed raises ImportError when it is made, and is named as skipped. A new one is
a line in ENCODERS or INDEXES.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from benchmarks.harness import OURS
from eval.comparators import Comparator
from jaxwhiten import Encoder, Whitening
from jaxwhiten.errors import InputError
from jaxwhiten.models import resolve_folder
from jaxwhiten.search import build_index
from jaxwhiten.text import BulkTokenizer

TOKEN_BUDGET = 2048  # of the batches of engines that have none of their own
Encode = Callable[[list[str]], np.ndarray]
T = TypeVar("T")


class Job(NamedTuple):
    """What is encoded, and with what.

    Attributes:
      folder: Of the model: sentence-transformers' and Hugging Face's files.
      max_length: Tokens.
      exports: A folder for the graph that is exported from the model, and for what is made of the graph alone.
      device: As PyTorch calls it.
      dtype: Of the matrix products of ours.
    """

    folder: Path
    max_length: int
    exports: Path
    device: str = "cpu"
    dtype: str = "float32"

    @property
    def tokenizer(self) -> BulkTokenizer:
        return BulkTokenizer(self.folder, self.max_length)

    @classmethod
    def of(cls, model: str, exports: Path, max_length: int = 128) -> Job:
        """A job on the CPU with a model by its name."""
        return cls(Path(resolve_folder(model)), max_length, exports)


class Contestant(NamedTuple):
    """An encoder: how it is made, and what it is good for.

    Attributes:
      make: From a job to a function from texts to vectors.
      exact: Whether its vectors are ours but for rounding in float32.
      large: Whether it runs with an encoder of random weights, too.
      gpu: Whether it runs on a GPU.
    """

    make: Callable[[Job], Encode]
    exact: bool = False
    large: bool = False
    gpu: bool = False


def made(contestants: Mapping[str, Callable[[], T]]) -> tuple[dict[str, T], dict[str, str]]:
    """Those that run here, and why others do not."""
    running: dict[str, T] = {}
    skipped: dict[str, str] = {}
    for name, make in contestants.items():
        try:
            with quiet():
                running[name] = make()
        except Exception as error:  # a peer that cannot be had must not cost the others their figures
            skipped[name] = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            print(f"  skipped {name}: {skipped[name]}", file=sys.stderr, flush=True)
    return running, skipped


def jaxwhiten_encode(job: Job, **options: Any) -> Encode:
    """`Encoder.encode`; `options` are further arguments of `Encoder.from_pretrained`."""
    options = {"dtype": job.dtype, **options}
    encoder = Encoder.from_pretrained(job.folder, pooling="mean", max_length=job.max_length, **options)
    return lambda texts: encoder.encode(texts, show_progress=False)


def sentence_transformers(job: Job, backend: str = "torch", dtype: str = "float32", batch_size: int = 32) -> Encode:
    """`SentenceTransformer.encode`, which sorts by length; SDPA attention in PyTorch, the file's default elsewhere."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    if backend == "openvino":
        import optimum.intel  # noqa: F401
    model_kwargs = {"attn_implementation": "sdpa"} if backend == "torch" else {"export": True}
    transformer = modules.Transformer(
        str(job.folder), model_kwargs=model_kwargs, max_seq_length=job.max_length, backend=backend
    )
    pooling = modules.Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling], device=job.device, backend=backend)
    if backend == "torch":
        model = model.to(getattr(torch, dtype))
    return lambda texts: model.encode(texts, batch_size=batch_size, show_progress_bar=False)


def onnx_session(job: Job, spinning: str = "1") -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """ONNX Runtime on the graph that PyTorch exports; its idle threads wait in a loop ("1") or asleep ("0")."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    session = onnxruntime.InferenceSession(exported(job), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, dict(feed))[0]


def openvino_session(job: Job) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """OpenVINO on the same graph; it computes in bfloat16 if it is not told otherwise."""
    import openvino

    core = openvino.Core()
    hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(core.read_model(exported(job)), "CPU", hints)
    return lambda feed: compiled(feed)[0]


Session = Callable[..., Callable[[Mapping[str, np.ndarray]], np.ndarray]]


def length_sorted(session: Session, **options: str) -> Callable[[Job], Encode]:
    """Batches of about `TOKEN_BUDGET` tokens for an engine, padded to their longest, by our tokenizer."""

    def make(job: Job) -> Encode:
        run = session(job, **options)
        tokenizer = job.tokenizer

        def encode(texts: list[str]) -> np.ndarray:
            tokens = tokenizer(texts)
            order = np.argsort(-tokens.lengths, kind="stable")
            start = 0
            parts = []
            while start < len(order):
                length = int(tokens.lengths[order[start]])
                rows = order[start : start + max(TOKEN_BUDGET // length, 1)]
                start += len(rows)
                mask = (np.arange(length) < tokens.lengths[rows][:, None]).astype(np.int64)
                padded = tokens.padded(rows, len(rows), length, 0).astype(np.int64)
                parts.append(run({"input_ids": padded, "attention_mask": mask}))
            vectors = np.concatenate(parts)
            return vectors[np.argsort(order)]

        return encode

    return make


def shortest(session: Session, **options: str) -> Callable[[Job], Encode]:
    """The shortest program that people write around an engine: tokenize one text, run, divide by the norm."""

    def make(job: Job) -> Encode:
        from tokenizers import Tokenizer

        run = session(job, **options)
        tokenizer = Tokenizer.from_file(str(job.folder / "tokenizer.json"))
        tokenizer.enable_truncation(job.max_length)
        tokenizer.no_padding()

        def encode(texts: list[str]) -> np.ndarray:
            [text] = texts
            ids = np.array([tokenizer.encode(text).ids], np.int64)
            vector = run({"input_ids": ids, "attention_mask": np.ones_like(ids)})
            return vector / np.linalg.norm(vector)

        return encode

    return make


def single_jaxwhiten(job: Job, **options: str) -> Encode:
    """`Encoder.encode` of the folder as it is."""
    return Encoder.from_pretrained(job.folder, **options).encode


def single_sentence_transformers(job: Job) -> Encode:
    """`SentenceTransformer.encode` of the folder as it is."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(job.folder), device="cpu")
    return lambda texts: model.encode(texts, show_progress_bar=False)


PEER = "sentence-transformers"
ONNX = "tokenizers, ONNX Runtime"
WITHOUT_SPINNING = f"{ONNX} without spinning"  # its idle threads leave the cores to FAISS's
OPENVINO = "tokenizers, OpenVINO"
JAX = f"{OURS}, engine jax"
_bfloat16 = functools.partial(sentence_transformers, dtype="bfloat16")
# Ours are named by what a user passes; names of peers say the precision where there are several.
ENCODERS = {
    OURS: Contestant(jaxwhiten_encode, exact=True, large=True, gpu=True),
    f"{OURS}, bfloat16": Contestant(functools.partial(jaxwhiten_encode, dtype="bfloat16"), large=True),
    JAX: Contestant(functools.partial(jaxwhiten_encode, engine="jax"), exact=True, large=True),
    PEER: Contestant(sentence_transformers, exact=True, large=True),
    f"{PEER} bfloat16": Contestant(_bfloat16, large=True, gpu=True),
    f"{PEER} bfloat16, batches of 256": Contestant(functools.partial(_bfloat16, batch_size=256), large=True, gpu=True),
    f"{PEER}, backend openvino": Contestant(functools.partial(sentence_transformers, backend="openvino"), large=True),
    "ONNX Runtime": Contestant(length_sorted(onnx_session), exact=True, large=True),
    "OpenVINO float32": Contestant(length_sorted(openvino_session), exact=True, large=True),
}
# One text at a time, to a vector of unit length.
SINGLE: dict[str, Callable[[Job], Encode]] = {
    OURS: single_jaxwhiten,
    JAX: functools.partial(single_jaxwhiten, engine="jax"),
    f"{OURS}, bfloat16": functools.partial(single_jaxwhiten, dtype="bfloat16"),
    PEER: single_sentence_transformers,
    ONNX: shortest(onnx_session),
    WITHOUT_SPINNING: shortest(onnx_session, spinning="0"),
    OPENVINO: shortest(openvino_session),
}


class Raw:
    """A code of others, with its own rotation in front of each query."""

    def __init__(self, name: str, x: np.ndarray, size: int) -> None:
        sample = x[:SAMPLE]
        self.code = Comparator(name, size, sample, Whitening(beta=0.0, gamma=0.0).fit(sample), x)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return self.code.search(queries, k, prepared=False)


def flat(x: np.ndarray, size: int) -> Any:
    """FAISS's exact search of float32 vectors."""
    import faiss

    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    return index


def fast_scan(x: np.ndarray, size: int) -> Any:
    """FAISS's product quantizer with 16 points per half byte."""
    import faiss

    index = faiss.index_factory(x.shape[1], f"PQ{2 * size}x4fs")
    index.train(x[:SAMPLE])
    index.add(x)
    return index


SAMPLE = 20_000  # vectors that codes of others are trained on
FLOATS = "FAISS float32"
# From vectors of unit length and bytes per vector to what has `search(queries, k)`.
INDEXES: dict[str, Callable[[np.ndarray, int], Any]] = {
    FLOATS: flat,
    OURS: lambda x, size: build_index(x, bytes=size),
    "FAISS PQ, fast scan": fast_scan,
    **{name: lambda x, size, name=name: Raw(name, x, size) for name in ("rabitq", "turbovec")},
}


def indexes(x: np.ndarray, size: int, names: Iterable[str] = INDEXES) -> dict[str, Any]:
    """Indexes by name; those that do not run here, or do not fit into the bytes, are left out."""
    by_name = {}
    for name in names:
        with contextlib.suppress(InputError, ImportError):
            by_name[name] = INDEXES[name](x, size)
    return by_name


def exported(job: Job) -> Path:
    """The graph that PyTorch exports, mean pooling included; made once in a folder."""
    path = job.exports / "model.onnx"
    if path.exists():
        return path
    import torch
    from transformers import AutoModel

    class MeanPooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(job.folder, attn_implementation="eager").float().eval()

        def forward(self, ids, mask):  # type: ignore[no-untyped-def]
            # A mask of four axes is taken as it is; versions of transformers differ in whether they trace another.
            additive = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
            hidden = self.model(input_ids=ids, attention_mask=additive).last_hidden_state
            weights = mask[:, :, None].float()
            return (hidden * weights).sum(1) / weights.sum(1)

    ids = torch.ones(2, 7, dtype=torch.long)
    axes = {0: "batch", 1: "length"}
    with quiet():
        torch.onnx.export(
            MeanPooled(),
            (ids, torch.ones_like(ids)),
            path,
            input_names=["input_ids", "attention_mask"],
            output_names=["vectors"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes, "vectors": {0: "batch"}},
            dynamo=False,
        )
    return path


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters print."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
