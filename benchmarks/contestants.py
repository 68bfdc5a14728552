"""Who takes part in `benchmarks.encode`: a name, and a function from a job to one from texts to vectors.

A contestant whose packages are not installed raises ImportError when it is made, and is named as skipped. A new one is
a line in CONTESTANTS.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eval.measure import keeping_tokenizer_threads
from jaxwhiten import Encoder
from jaxwhiten.text import BulkTokenizer

TOKEN_BUDGET = 2048  # of the batches of engines that have none of their own
Encode = Callable[[list[str]], np.ndarray]


class Job(NamedTuple):
    """What is encoded, and with what.

    Attributes:
      folder: Of the model: sentence-transformers' and Hugging Face's files.
      max_length: Tokens.
      tokenizer: Of the model.
      scratch: A folder for what a contestant writes.
      exports: A folder for the graph that is exported from the model, and for what is made of the graph alone.
      device: As PyTorch calls it.
      dtype: Of the matrix products of ours.
    """

    folder: Path
    max_length: int
    tokenizer: BulkTokenizer
    scratch: Path
    exports: Path
    device: str
    dtype: str


class Contestant(NamedTuple):
    """How a contestant is made, and what it is good for.

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


def jaxwhiten_encode(job: Job, **options: Any) -> Encode:
    """`Encoder.encode`; `options` are further arguments of `Encoder.from_pretrained`."""
    options = {"dtype": job.dtype, **options}
    encoder = Encoder.from_pretrained(job.folder, pooling="mean", max_length=job.max_length, **options)
    return lambda texts: encoder.encode(texts, show_progress=False)


def sentence_transformers(
    job: Job, backend: str = "torch", dtype: str = "float32", batch_size: int = 32, **options: Any
) -> Encode:
    """`SentenceTransformer.encode`, which sorts by length; SDPA attention in PyTorch, the file's default elsewhere."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    if backend == "openvino":
        import optimum.intel
    if backend == "onnx":
        import optimum.onnxruntime  # noqa: F401
    if backend == "torch":
        model_kwargs = {"attn_implementation": "sdpa"}
    else:
        model_kwargs = {"export": True, **options}
    with quiet():
        transformer = modules.Transformer(
            str(job.folder), model_kwargs=model_kwargs, max_seq_length=job.max_length, backend=backend
        )
        pooling = modules.Pooling(transformer.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[transformer, pooling], device=job.device, backend=backend)
    if backend == "torch":
        model = model.to(getattr(torch, dtype))
    return lambda texts: model.encode(texts, batch_size=batch_size, show_progress_bar=False)


def onnxruntime(job: Job) -> Encode:
    """ONNX Runtime on the graph that PyTorch exports, length-sorted."""
    import onnxruntime

    session = onnxruntime.InferenceSession(exported(job), providers=["CPUExecutionProvider"])
    return length_sorted(job, lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0])


def fastembed(job: Job) -> Encode:
    """fastembed, which runs ONNX Runtime, on that graph beside the tokenizer's files, as a model of one's own."""
    model = local_fastembed(job, normalization=False)
    return lambda texts: np.stack(list(model.embed(texts)))


def local_fastembed(job: Job, normalization: bool) -> Any:
    """fastembed's model, which asks no hub."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    graph = exported(job)
    for file in job.folder.glob("*.json"):
        shutil.copy(file, graph.parent)
    settings = graph.parent / "tokenizer_config.json"  # where it finds the length of texts
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": job.max_length}))
    name = f"jaxwhiten-benchmarks/{uuid.uuid4()}"
    nowhere = ModelSource(url="http://localhost/none")
    TextEmbedding.add_custom_model(
        model=name,
        sources=nowhere,
        pooling=PoolingType.DISABLED,
        normalization=normalization,
        dim=384,
        model_file=graph.name,
    )
    return TextEmbedding(name, specific_model_path=str(graph.parent))


def openvino(job: Job, precision: str) -> Encode:
    """OpenVINO on the same graph, length-sorted."""
    import openvino

    core = openvino.Core()
    model = core.read_model(exported(job))
    hint = {"INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else "f32"}
    compiled = core.compile_model(model, "CPU", {**hint, "PERFORMANCE_HINT": "LATENCY"})
    return length_sorted(job, lambda ids, mask: compiled({"input_ids": ids, "attention_mask": mask})[0])


def keras_hub(job: Job) -> Encode:
    """keras-hub's `TextEmbedder` on JAX, which pads every text to the longest allowed and normalises."""
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with quiet():
        import keras_hub

        model = keras_hub.models.TextEmbedder.from_preset(str(job.folder))
    model.preprocessor.sequence_length = job.max_length
    return lambda texts: np.asarray(model.encode_text(texts, batch_size=32, verbose=0))


def model2vec(job: Job) -> Encode:
    """model2vec's distillation of the encoder: a vector per token of the vocabulary, averaged; 256 dimensions."""
    model = distilled(job.folder)
    return keeping_tokenizer_threads(lambda texts: model.encode(texts, max_length=job.max_length))


@functools.cache
def distilled(folder: Path) -> Any:
    """model2vec's model of an encoder, which does not depend on the texts."""
    from model2vec.distill import distill

    with quiet():
        return distill(str(folder), pca_dims=256)


# Ours are named by what a user passes; names of peers say the precision where there are several. OpenVINO computes in
# bfloat16 if it is not told otherwise.
CONTESTANTS = {
    "jaxwhiten": Contestant(jaxwhiten_encode, exact=True, large=True, gpu=True),
    "jaxwhiten, bfloat16": Contestant(functools.partial(jaxwhiten_encode, dtype="bfloat16"), large=True),
    "jaxwhiten, engine jax": Contestant(functools.partial(jaxwhiten_encode, engine="jax"), exact=True, large=True),
    "sentence-transformers": Contestant(sentence_transformers, exact=True, large=True),
    "sentence-transformers bfloat16": Contestant(
        functools.partial(sentence_transformers, dtype="bfloat16"), large=True, gpu=True
    ),
    "sentence-transformers bfloat16, batches of 256": Contestant(
        functools.partial(sentence_transformers, dtype="bfloat16", batch_size=256), large=True, gpu=True
    ),
    "sentence-transformers, backend onnx": Contestant(functools.partial(sentence_transformers, backend="onnx")),
    "sentence-transformers, backend openvino": Contestant(
        functools.partial(sentence_transformers, backend="openvino"), large=True
    ),
    "fastembed": Contestant(fastembed, exact=True),
    "ONNX Runtime": Contestant(onnxruntime, exact=True, large=True),
    "OpenVINO float32": Contestant(functools.partial(openvino, precision="float32"), exact=True, large=True),
    "OpenVINO bfloat16": Contestant(functools.partial(openvino, precision="bfloat16"), large=True),
    "keras-hub": Contestant(keras_hub),
    "model2vec": Contestant(model2vec),
}


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


def length_sorted(job: Job, run: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Encode:
    """Batches of about `TOKEN_BUDGET` tokens for an engine, padded to their longest, by our tokenizer."""

    def encode(texts: list[str]) -> np.ndarray:
        tokens = job.tokenizer(texts)
        order = np.argsort(-tokens.lengths, kind="stable")
        start = 0
        parts = []
        while start < len(order):
            length = int(tokens.lengths[order[start]])
            rows = order[start : start + max(TOKEN_BUDGET // length, 1)]
            start += len(rows)
            mask = (np.arange(length) < tokens.lengths[rows][:, None]).astype(np.int64)
            padded = tokens.padded(rows, len(rows), length, 0).astype(np.int64)
            parts.append((rows, run(padded, mask)))
        out = np.empty((len(texts), parts[0][1].shape[1]), np.float32)
        for rows, vectors in parts:
            out[rows] = vectors
        return out

    return encode


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
