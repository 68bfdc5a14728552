"""Encoder and head as one ONNX graph (`jaxwhiten.models.graph`).

Its inputs are `input_ids` and `attention_mask` (int64 [batch, length], padding on the right). Its output is
`sentence_embedding`: float32 [batch, k], or uint8 [batch, bytes] if the head ends with a code.
"""

from __future__ import annotations

from pathlib import Path

from jaxwhiten import io
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.head import Settings, write_steps
from jaxwhiten.models import StaticEncoder
from jaxwhiten.models.graph import TOKENS, EncoderGraph, Graph

MODEL = "model.onnx"


def save_onnx(folder: str | Path, encoder: Encoder) -> Path:
    """Writes `model.onnx`, the tokenizer, which truncates to the encoder's `max_length`, and the prompts by name.

    The folder is new, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.

    Raises:
      InputError: The model, a step of the head or a default prompt cannot be exported, or the dtype is not float32.
      MissingDependencyError: The package onnx is not installed.
    """
    form, folder = encoder.head.form, Path(folder)
    if form.prompt or form.lower_case:
        raise InputError(f"{encoder.name}: a graph takes token ids, so {form!r} cannot be exported to ONNX.")
    if isinstance(encoder.model(), StaticEncoder):
        raise InputError(f"{encoder.name}: a static encoder has no graph: its own folder is what model2vec loads.")
    if encoder.dtype != "float32":
        raise InputError(f"dtype={encoder.dtype!r}: an ONNX graph computes in float32, use dtype='float32'.")
    graph = Graph()
    vectors = write_steps(encoder.head.steps, EncoderGraph(graph, encoder.model(), encoder.max_length))
    graph.op("Identity", vectors, output="sentence_embedding")
    facts = {"max_length": str(encoder.max_length), "head": encoder.head.summary}
    proto = graph.finish(TOKENS, {"sentence_embedding": encoder.dimension}, facts, encoder.head.dtype)
    with io.whole_folder(folder, kind="onnx") as whole:
        (whole / MODEL).write_bytes(proto.SerializeToString())
        encoder.tokenizer.save(whole, form)
        Settings(encoder.prompts, encoder.default_prompt_name, encoder.similarity_fn_name).write(whole)
    return folder
