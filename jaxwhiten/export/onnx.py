"""Encoder and head as one ONNX graph (`jaxwhiten.models.graph`).

Its inputs are `input_ids` and `attention_mask` (int64 [batch, length], padding on the right), its output is
`sentence_embedding` (float32 [batch, k], or uint8 [batch, bytes] of a head that ends in a code).
"""

from __future__ import annotations

from pathlib import Path

from jaxwhiten import io
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.export.sentence_transformers import as_encoder
from jaxwhiten.head import AUTO, write_steps
from jaxwhiten.models.graph import MAX_BYTES, TOKENS, Graph, encoder_graph
from jaxwhiten.whitening import Whitening

MODEL = "model.onnx"


def save_onnx(
    folder: str | Path,
    model: Encoder | str | Path,
    *,
    pooling: str = AUTO,
    max_length: int | None = None,
    whitening: Whitening | None = None,
    revision: str | None = None,
) -> Path:
    """Writes `model.onnx` and the tokenizer.

    Args:
      folder: Made if missing; files of the same names are replaced.
      model: An encoder, or what `Encoder.from_pretrained` reads with the arguments below.
      pooling: As in `Encoder.from_pretrained`.
      max_length: Longest sentence in tokens; longer inputs fail.
      whitening: Follows the pooling; vectors are then scaled to unit length. None for neither.
      revision: Commit, tag or branch on the hub.

    Returns:
      The folder.

    Raises:
      InputError: A step of the head or a model that cannot be written so.
      MismatchError: A whitening of other vectors.
      MissingDependencyError: The package onnx is not installed.
    """
    graph = Graph()
    encoder = as_encoder(model, pooling=pooling, max_length=max_length, whitening=whitening, revision=revision)
    form = encoder.head.form
    if form.prompt or form.lower_case:
        raise InputError(f"{encoder.name}: a graph takes token ids, so {form!r} cannot be exported to ONNX.")
    folder = Path(folder)
    vectors = write_steps(encoder.head.steps, encoder_graph(graph, encoder.model(), encoder.max_length))
    graph.op("Identity", vectors, output="sentence_embedding")
    facts = {"max_length": str(encoder.max_length), "head": encoder.head.summary}
    if graph.nbytes > MAX_BYTES:
        raise InputError(f"{model}: {graph.nbytes / 1e9:.1f} GB of weights are more than one ONNX file can hold.")
    proto = graph.finish(TOKENS, {"sentence_embedding": encoder.dimension}, facts, encoder.head.dtype)
    with io.atomic_path(folder / MODEL) as temporary:
        temporary.write_bytes(proto.SerializeToString())
    encoder.tokenizer.save(folder, form)
    return folder
