"""An encoder, optionally with a whitening, as a model for MTEB's own evaluator."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import Encoder, io
from jaxwhiten.arrays import as_floats
from jaxwhiten.errors import MismatchError
from jaxwhiten.text import as_texts
from jaxwhiten.types import Fields, Float, RowsLike


class MTEBEncoder:
    """An encoder with the interface of `mteb.evaluate` (MTEB 2, `EncoderProtocol`).

    An encoder that ends with a code is scored with coded documents: queries are floats, other texts decoded codes.
    `experiment_kwargs` names code and bytes.
    Texts get the encoder's own prompts: that of the task or of its type, if there is one under a name of MTEB; else
    that of queries or documents, as with `encode_query` and `encode_document`; other texts get the default prompt.
    MTEB's prompts are not used, because the encoders here were not trained with them. Vectors are compared by cosine.
    MTEB stores results by name and revision. The revision depends on prompts, pooling, whitening and length, so that
    results of different settings are never confused.

    Args:
      whitening: A fitted `Whitening`, code or scikit-learn transformer, applied to every vector; None for none.
    """

    def __init__(self, encoder: Encoder, whitening: Any = None) -> None:
        self.encoder = encoder
        self.whitening = whitening
        width = encoder.view.floats.dimension
        named = {"pooling": encoder.pooling}
        if whitening is not None:
            takes = getattr(whitening, "n_features_in_", width)
            params: Fields = getattr(whitening, "get_params", dict)()
            if takes != width:
                raise MismatchError(f"Expected {takes} dimensions for this whitening, got {width} from {encoder.name}.")
            parts = [f"{key}{value}" for key, value in params.items() if isinstance(value, int | float)]
            named["whitening"] = "-".join([type(whitening).__name__, *parts])
        if (code := encoder.head.code) is not None:
            named |= {"code": code.name, "bytes": str(code.nbytes)}
        probe = self._whitened(np.random.default_rng(0).standard_normal((8, width), dtype=np.float32))
        setting: list[Any] = [encoder.fingerprint, encoder.max_length, encoder.dtype, encoder.pooling]
        prompted = any(encoder.prompts.values())
        setting += [sorted(encoder.prompts.items())] if prompted else []
        module = importlib.import_module("mteb.models.model_meta")
        self.mteb_model_meta = module.ModelMeta.create_empty(
            {
                "name": _organised(encoder.name),
                "revision": io.content_key(*setting, np.asarray(probe, np.float32).round(4).tolist()),
                "max_tokens": encoder.max_length,
                "embed_dim": int(probe.shape[1]),
                "framework": ["JAX"],
                "similarity_fn_name": module.ScoringFunction.COSINE,
                "use_instructions": prompted,
                "experiment_kwargs": named,
            }
        )

    def _whitened(self, vectors: np.ndarray) -> np.ndarray:
        if self.whitening is None:
            return as_floats(vectors)
        return self.whitening.transform(vectors)

    def encode(
        self, inputs: Iterable[Fields], *, show_progress_bar: bool = False, **about: Any
    ) -> Float[np.ndarray, "n k"]:
        """Encodes the `text` of batches from MTEB's data loader: one vector per text, in order.

        They are decoded codes if the encoder ends with a code, except for queries. `about` are task, split, subset,
        prompt type and further options of MTEB; the task's metadata and the prompt type choose the prompt.
        """
        texts = [text for batch in inputs for text in as_texts(batch["text"])]
        role = str(getattr(kind := about.get("prompt_type"), "value", kind or ""))
        encoder = self.encoder.without_code() if role == "query" else self.encoder
        encode = {"query": encoder.encode_query, "document": encoder.encode_document}.get(role, encoder.encode)
        prompt_name = self._prompt_name(about.get("task_metadata"), role)
        return self._whitened(encode(texts, prompt_name=prompt_name, show_progress=show_progress_bar))

    def _prompt_name(self, task: Any, role: str) -> str | None:
        """The encoder's prompt for a task or for its type, by the names and in the order of MTEB; None if none is."""
        names = [str(name) for name in (getattr(task, "name", None), getattr(task, "type", None)) if name]
        names = [name for of_task in names for name in (f"{of_task}-{role}", of_task)]
        return next((name for name in names if name in self.encoder.prompts), None)

    def similarity(self, embeddings1: RowsLike, embeddings2: RowsLike) -> Any:
        """Cosines of all rows of one array with all rows of another, as the tensor that MTEB expects."""
        return importlib.import_module("mteb.similarity_functions").cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: RowsLike, embeddings2: RowsLike) -> Any:
        """Cosines of rows of one array with the same rows of another, as the tensor that MTEB expects."""
        return importlib.import_module("mteb.similarity_functions").pairwise_cos_sim(embeddings1, embeddings2)


def _organised(name: str) -> str:
    """`ORGANISATION/MODEL` from a hub id or a folder."""
    parts = [part for part in Path(name).parts if part not in ("/", ".", "..")]
    if len(parts) == 2 and not Path(name).is_absolute():
        return name
    return f"local/{parts[-1] if parts else 'model'}"
