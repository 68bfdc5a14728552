"""An encoder, optionally with a whitening, as a model for MTEB's own evaluator.

import mteb
from jaxwhiten.export.mteb import MTEBEncoder

model = MTEBEncoder(Encoder.from_pretrained("bert-base-uncased"), Whitening.load("whitening.safetensors"))
mteb.evaluate(model, mteb.get_tasks(["STS12", "STS16"]))
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.coded import as_floats
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import MismatchError, optional
from jaxwhiten.shapes import Float
from jaxwhiten.text import as_texts


class MTEBEncoder:
    """An encoder with the interface of `mteb.evaluate` (MTEB 2, `EncoderProtocol`).

    An encoder that ends with a code is scored with coded documents: queries are floats, other texts decoded codes.
    `experiment_kwargs` names code and bytes.
    MTEB's prompts are not used, because the encoders here were not trained with them. Vectors are compared by cosine.
    MTEB stores results by name and revision. The revision depends on pooling, whitening and length, so that results of
    different settings are never confused.

    Args:
      whitening: A fitted `Whitening`, code or scikit-learn transformer, applied to every vector; None for none.
      batch_size: Maximum sentences per batch; by default a token budget decides. MTEB's own 32 is not used.
      name: The name for results, `ORGANISATION/MODEL`; by default made from the encoder's name.
    """

    def __init__(
        self, encoder: Encoder, whitening: Any = None, *, batch_size: int | None = None, name: str | None = None
    ) -> None:
        self.encoder, self.whitening, self.batch_size = encoder, whitening, batch_size
        width, named = encoder.without_code().dimension, {"pooling": encoder.pooling}
        if whitening is not None:
            takes = getattr(whitening, "n_features_in_", width)
            params: Mapping[str, Any] = getattr(whitening, "get_params", dict)()
            if takes != width:
                raise MismatchError(f"Expected {takes} dimensions for this whitening, got {width} from {encoder.name}.")
            shown = [f"{key}{value}" for key, value in params.items() if isinstance(value, int | float)]
            named["whitening"] = "-".join([type(whitening).__name__, *shown])
        if (code := encoder.head.code) is not None:
            named |= {"code": code.name, "bytes": str(code.nbytes)}
        probe = self._whitened(np.random.default_rng(0).standard_normal((8, width), dtype=np.float32))
        setting = [encoder.fingerprint, encoder.max_length, encoder.dtype, encoder.pooling]
        module = optional("mteb.models.model_meta", "mteb", "MTEBEncoder", "mteb")
        self.mteb_model_meta = module.ModelMeta.create_empty(
            {
                "name": name or _organised(encoder.name),
                "revision": io.content_key(*setting, np.asarray(probe, np.float32).round(4).tolist()),
                "max_tokens": encoder.max_length,
                "embed_dim": int(probe.shape[1]),
                "framework": ["JAX"],
                "similarity_fn_name": module.ScoringFunction.COSINE,
                "use_instructions": False,
                "experiment_kwargs": named,
            }
        )

    def _whitened(self, vectors: np.ndarray) -> np.ndarray:
        return as_floats(vectors) if self.whitening is None else self.whitening.transform(vectors)

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, show_progress_bar: bool = False, **about: Any
    ) -> Float[np.ndarray, "n k"]:
        """Encodes the `text` of batches from MTEB's data loader: one vector per text, in order.

        They are decoded codes if the encoder ends with a code, except for queries. `about` are task, split, subset,
        prompt type and further options of MTEB; only the prompt type is used.
        """
        texts = [text for batch in inputs for text in as_texts(batch["text"])]
        encoder = self.encoder.without_code() if about.get("prompt_type") == "query" else self.encoder
        return self._whitened(encoder.encode(texts, batch_size=self.batch_size, show_progress=show_progress_bar))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of all rows of one array with all rows of another, as the tensor that MTEB expects."""
        return importlib.import_module("mteb.similarity_functions").cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of rows of one array with the same rows of another, as the tensor that MTEB expects."""
        return importlib.import_module("mteb.similarity_functions").pairwise_cos_sim(embeddings1, embeddings2)


def _organised(name: str) -> str:
    """`ORGANISATION/MODEL` from a hub id or a folder."""
    parts = [part for part in Path(name).parts if part not in ("/", ".", "..")]
    return name if len(parts) == 2 and not Path(name).is_absolute() else f"local/{parts[-1] if parts else 'model'}"
