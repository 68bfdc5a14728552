"""Files of other libraries: encoder and head as an ONNX graph, and a whitening for FAISS."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxwhiten import io
from jaxwhiten.codes.code import behind, import_faiss, transforms
from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.encoder import settings_of
from jaxwhiten.errors import InputError
from jaxwhiten.head import write_steps
from jaxwhiten.models import StaticEncoder
from jaxwhiten.models.graph import TOKENS, EncoderGraph, Graph
from jaxwhiten.whitening import Whitening

MODEL = "model.onnx"
CENTERING = "centering.vt"
LINEAR = "linear.vt"
INDEX = "index.faiss"


def save_onnx(folder: str | Path, encoder: Encoder) -> Path:
    """Writes `model.onnx`, the tokenizer, which truncates to the encoder's `max_length`, and the prompts by name.

    The inputs of the graph are `input_ids` and `attention_mask` (int64 [batch, length], padding on the right). Its
    output is `sentence_embedding`: float32 [batch, k], or uint8 [batch, bytes] if the head ends with a code.

    The folder is new, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.

    >>> folder = save_onnx("onnx", Encoder.from_pretrained("jaxwhiten-tiny"))
    >>> (folder / "model.onnx").exists()
    True

    Raises:
      InputError: The model, a step of the head or a default prompt cannot be exported, or the dtype is not float32.
      MissingDependencyError: The package onnx is not installed.
    """
    form = encoder.view.head.form
    folder = Path(folder)
    if form.prompt or form.lower_case:
        raise InputError(f"{encoder.name}: a graph takes token ids, so {form!r} cannot be exported to ONNX.")
    if isinstance(model := encoder.view.core.model(), StaticEncoder):
        raise InputError(f"{encoder.name}: a static encoder has no graph: its own folder is what model2vec loads.")
    if encoder.view.core.engine.dtype != "float32":
        raise InputError(
            f"dtype={encoder.view.core.engine.dtype!r}: an ONNX graph computes in float32, use dtype='float32'."
        )
    graph = Graph()
    vectors = write_steps(encoder.view.head.steps, EncoderGraph(graph, model, encoder.max_length))
    graph.op("Identity", vectors, output="sentence_embedding")
    facts = {"max_length": str(encoder.max_length), "head": encoder.view.head.summary}
    proto = graph.finish(TOKENS, {"sentence_embedding": encoder.dimension}, facts, encoder.view.head.dtype)
    with io.whole_folder(folder, kind="onnx") as whole:
        (whole / MODEL).write_bytes(proto.SerializeToString())
        encoder.view.core.tokenizer.save(whole)
        dataclasses.replace(settings_of(encoder), tuned=None).write(whole)
    return folder


def save_faiss(folder: str | Path, whitening: Whitening) -> Path:
    """Writes a whitening for FAISS.

    `centering.vt` subtracts the mean, so that no digits are lost (there is none for β = 0), and `linear.vt` is a
    `LinearTransform`: `faiss.read_VectorTransform(file).apply(x)`, one file after the other, is
    `whitening.transform(x)`. `index.faiss` is an empty `IndexPreTransform` of both, `NormalizationTransform` and
    `IndexFlatIP`. It takes raw vectors as documents and queries; scores are cosines of whitened vectors.

    The folder is new, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8))
    >>> sorted(path.name for path in save_faiss("faiss", Whitening().fit(rows)).iterdir())
    ['centering.vt', 'index.faiss', 'jaxwhiten.json', 'linear.vt']

    Raises:
      NotFittedError: The whitening is not fitted.
      MissingDependencyError: FAISS is not installed.
    """
    faiss = import_faiss("Exporting to FAISS")
    folder = Path(folder)
    affine = whitening.affine.in_float32(unit_length=True)
    chain = transforms(affine)
    flat = faiss.IndexFlatIP(affine.outputs)
    index = behind(chain, flat)
    with io.whole_folder(folder, RuntimeError, kind="faiss") as whole:
        for transform, name in zip(chain[-2::-1], (LINEAR, CENTERING), strict=False):
            faiss.write_VectorTransform(transform, str(whole / name))
        faiss.write_index(index, str(whole / INDEX))
    return folder
