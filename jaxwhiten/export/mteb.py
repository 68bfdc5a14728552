"""An encoder, optionally with a whitening, as a model for MTEB's own evaluator.

import mteb
from jaxwhiten.export.mteb import MTEBEncoder

model = MTEBEncoder(Encoder.from_pretrained("bert-base-uncased"), Whitening.load("whitening.safetensors"))
mteb.evaluate(model, mteb.get_tasks(["STS12", "STS16"]))
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import normalize
from jaxwhiten.coded import as_floats
from jaxwhiten.codes import Code
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import MismatchError, optional
from jaxwhiten.shapes import Float
from jaxwhiten.text import ROLES, as_texts, in_role
from jaxwhiten.typing import Fields, RowsLike


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
      batch_size: Maximum sentences per batch; by default a token budget decides. MTEB's own 32 is not used.
      name: The name for results, `ORGANISATION/MODEL`; by default made from the encoder's name.
    """

    def __init__(
        self, encoder: Encoder, whitening: Any = None, *, batch_size: int | None = None, name: str | None = None
    ) -> None:
        self.encoder = encoder
        self.whitening = whitening
        self.batch_size = batch_size
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
        module = optional("mteb.models.model_meta", "mteb", "MTEBEncoder", "mteb")
        self.mteb_model_meta = module.ModelMeta.create_empty(
            {
                "name": name or _organised(encoder.name),
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
        options: dict[str, Any] = {"prompt_name": self._prompt_name(about.get("task_metadata"), role)}
        options |= {"batch_size": self.batch_size, "show_progress": show_progress_bar}
        if role in ROLES:
            options = in_role(encoder.prompts, role, options)
        return self._whitened(encoder.encode(texts, **options))

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


class CodeWrapper:
    """Any model of MTEB with coded texts, beside `mteb.models.CompressionWrapper`, which has int8, binary and others.

    Queries stay as they are; all other texts are decoded codes. The code is fitted, without labels, on the first of
    these texts that are encoded for a task: the corpus, up to `corpus_chunk_size`.

    Args:
      model: A model that `mteb.evaluate` takes, such as `mteb.get_model(...)` or an `MTEBEncoder`.
      code: A code to fit, unfitted: a copy is fitted for each task.
    """

    def __init__(self, model: Any, code: Code) -> None:
        self.model = model
        self.code = code
        self._fitted: dict[tuple[Any, ...], Code] = {}
        meta = model.mteb_model_meta
        size = {key: str(value) for key, value in code.get_params().items()}
        kwargs = {**(meta.experiment_kwargs or {}), "code": code.name, **size}
        self.mteb_model_meta = meta.model_copy(update={"experiment_kwargs": kwargs})

    def encode(self, inputs: Any, *, prompt_type: Any = None, **about: Any) -> Float[np.ndarray, "n k"]:
        """The model's vectors of queries, and decoded codes of other texts; arguments as of MTEB's models."""
        vectors = np.asarray(self.model.encode(inputs, prompt_type=prompt_type, **about), np.float32)
        if str(getattr(prompt_type, "value", prompt_type or "")) == "query":
            return vectors
        task = getattr(about.get("task_metadata"), "name", None), about.get("hf_split"), about.get("hf_subset")
        if task not in self._fitted:
            self._fitted[task] = type(self.code)(**self.code.get_params()).fit(normalize(vectors))
        code = self._fitted[task]
        return code.decode(code.encode(normalize(vectors)))

    def similarity(self, embeddings1: RowsLike, embeddings2: RowsLike) -> Any:
        """The model's similarity."""
        return self.model.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: RowsLike, embeddings2: RowsLike) -> Any:
        """The model's similarity of rows with the same rows of another array."""
        return self.model.similarity_pairwise(embeddings1, embeddings2)


def _organised(name: str) -> str:
    """`ORGANISATION/MODEL` from a hub id or a folder."""
    parts = [part for part in Path(name).parts if part not in ("/", ".", "..")]
    if len(parts) == 2 and not Path(name).is_absolute():
        return name
    return f"local/{parts[-1] if parts else 'model'}"
