"""Scores of sentence pairs by a model that reads both sentences together, for re-ranking and for classification.

    model = CrossEncoder.from_pretrained("folder")
    scores = model.predict([("A man plays a guitar.", "Someone makes music.")])  # float32 [1]

Batches, their layout and their compiled programs are shared with `Encoder`.

References:
  Nogueira & Cho 2019, "Passage Re-ranking with BERT".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxwhiten import io
from jaxwhiten.engines.engine import digest
from jaxwhiten.engines.forward import JAXEngine
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head import Head
from jaxwhiten.models import PairClassifier, load_pair_classifier, save_pair_classifier
from jaxwhiten.text import SIDES, Texts, as_rows, as_texts
from jaxwhiten.text.settings import read_object
from jaxwhiten.types import Float32, Int, Json
from jaxwhiten.views.core import tokenizer_for
from jaxwhiten.views.stream import BLOCK, Output, progress, vectors

# By the last part of PyTorch's name: the full name, and the function.
_ACTIVATIONS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "Sigmoid": ("torch.nn.modules.activation.Sigmoid", lambda x: 1 / (1 + np.exp(-np.maximum(x, np.float32(-80))))),
    "Identity": ("torch.nn.modules.linear.Identity", lambda x: x),
}


class CrossEncoder:
    """A classifier of sentence pairs with its tokenizer.

    Usually made by `from_pretrained`; the constructor is for models made in memory. Threads may share it.

    >>> cross = CrossEncoder.from_pretrained("cross")  # a folder
    >>> [hit["corpus_id"] for hit in cross.rank("a dog", ["It rains.", "A dog runs."], top_k=1)]
    [1]

    Args:
      model: A Flax NNX classifier (`jaxwhiten.models.PairClassifier`).
      tokenizer_folder: The folder of its tokenizer.
      max_length: Maximum length of a pair in tokens, special tokens included; the longer sentence is truncated first.
        By default the tokenizer folder's.
      activation: Activation of the logits: `"Sigmoid"`, the default for one label, or `"Identity"`, for several.
      label_names: Names of the labels.
      name: Name of the model in messages.
      device: As in `Encoder`.
    """

    def __init__(
        self,
        model: PairClassifier,
        tokenizer_folder: str | Path,
        *,
        max_length: int | None = None,
        activation: str | None = None,
        label_names: Sequence[str] = (),
        name: str = "",
        device: str | jax.Device | None = None,
    ):
        self.labels = model.labels
        self.name = name or str(tokenizer_folder)
        self.activation = activation or ("Sigmoid" if model.labels == 1 else "Identity")
        if self.activation not in _ACTIVATIONS:
            names = ", ".join(_ACTIVATIONS)
            raise ModelError(f"{self.name}: activation {self.activation!r} is not supported; expected one of {names}.")
        self.label_names = tuple(label_names) or tuple(f"LABEL_{number}" for number in range(model.labels))
        self.tokenizer = tokenizer_for(model, Path(tokenizer_folder), max_length)
        self.engine = JAXEngine(model, self.tokenizer.max_length, device)
        head = Head.named("pooler")  # a classifier returns its logits as the pooler output
        self._outputs = {"logits": Output(head.form, head.steps, model.labels)}

    def __reduce__(self) -> Any:
        raise InputError("An encoder cannot be pickled or deep-copied: save it, and load its folder there.")

    @property
    def fingerprint(self) -> str:
        """A hash of weights, configuration and tokenizer."""
        return digest(self.engine, self.tokenizer)[:24]

    @classmethod
    def from_pretrained(
        cls, model: str | Path, *, max_length: int | None = None, device: str | jax.Device | None = None, **reading: Any
    ) -> CrossEncoder:
        """Reads a cross-encoder from a local folder or the hub, in sentence-transformers' layout.

        Args:
          model: Folder or hub id.
          max_length: Maximum length of a pair in tokens; by default the limit of the folder's tokenizer.
          device: As in the constructor.
          **reading: `dtype` and `revision`, as in `Encoder.from_pretrained`.

        Raises:
          ModelError: The folder cannot be read, has no classifier, or needs something that is not supported.
        """
        classifier, folder = load_pair_classifier(model, **reading)
        config, settings = (
            read_object(folder / name, optional=True) for name in ("config.json", "config_sentence_transformers.json")
        )
        if settings.get("default_prompt_name"):
            raise ModelError(f"{folder}: a default prompt for pairs is not supported: remove it from the folder.")
        older = {"activation_fn": config.get("sbert_ce_default_activation_function")}
        places = (settings, config.get("sentence_transformers") or {}, older)
        activation = next((str(place["activation_fn"]) for place in places if place.get("activation_fn")), "")
        names = config.get("id2label") or {}
        return cls(
            classifier,
            folder,
            max_length=max_length,
            activation=activation.rpartition(".")[2] or None,
            label_names=[str(names.get(str(number), f"LABEL_{number}")) for number in range(classifier.labels)],
            name=str(model),
            device=device,
        )

    def predict(self, pairs: Any, *, apply_softmax: bool = False, show_progress: bool | None = None) -> np.ndarray:
        """Scores pairs.

        Args:
          pairs: Pairs of sentences: rows of two, or an iterator such as `zip(table["a"], table["b"])`.
          apply_softmax: Whether to normalize the scores of several labels to sum 1.
          show_progress: As in `Encoder.encode`.

        Returns:
          float32 [n] for one label, else [n, labels].
        """
        sides = map(as_texts, as_rows(pairs, 2, "a pair of sentences"), SIDES)
        logits = self._logits(list(zip(*sides, strict=True)), show_progress)
        scores = _ACTIVATIONS[self.activation][1](logits)
        if self.labels == 1:
            return scores[:, 0]
        if apply_softmax:
            return np.asarray(jax.nn.softmax(scores, axis=-1))
        return scores

    def rank(self, query: str, documents: Texts, top_k: int | None = None) -> list[Json]:
        """Ranks documents for a query: at most `top_k` dicts of `corpus_id` and `score`, best first."""
        documents = as_texts(documents, "document")
        scores, ids = self.rerank([query], documents, np.arange(len(documents))[None], show_progress=False)
        ranked = zip(ids[0].tolist(), scores[0].tolist(), strict=True)
        return [{"corpus_id": i, "score": score} for i, score in ranked][:top_k]

    def rerank(
        self,
        queries: Texts,
        documents: Texts,
        ids: Int[np.ndarray, "q k"],
        *,
        show_progress: bool | None = None,
    ) -> tuple[Float32[np.ndarray, "q k"], Int[np.ndarray, "q k"]]:
        """Reorders the results of a search by pair scores, with a model that has one label.

        Args:
          queries, documents: Their texts.
          ids: The documents found for each query, as `Index.search` returns them; −1 for a missing result.
          show_progress: As in `Encoder.encode`.

        Returns:
          Scores and ids, best first; −1 comes last, with score −inf.
        """
        if self.labels != 1:
            raise InputError(f"{self.name} has {self.labels} labels; ranking needs a model with one score per pair.")
        queries = as_texts(queries, "query")
        documents = as_texts(documents, "document")
        pairs = [(queries[query], documents[ids[query, place]]) for query, place in np.argwhere(ids >= 0).tolist()]
        logits = np.full(ids.shape, -np.inf, np.float32)
        logits[ids >= 0] = self._logits(pairs, show_progress)[:, 0]
        order = np.argsort(-logits, axis=1, kind="stable")
        sorted_logits = np.take_along_axis(logits, order, axis=1)
        scores = np.where(np.isfinite(sorted_logits), _ACTIVATIONS[self.activation][1](sorted_logits), sorted_logits)
        return scores, np.take_along_axis(ids, order, axis=1)

    def _logits(self, pairs: list[tuple[str, str]], show: bool | None) -> Float32[np.ndarray, "n labels"]:
        """The logits of pairs, sorted by length and computed block by block."""
        out = np.empty((len(pairs), self.labels), np.float32)
        with progress(pairs, show) as bar:
            for start in range(0, len(pairs), BLOCK):
                some = pairs[start : start + BLOCK]
                tokens = self.tokenizer.pairs(some)
                block = vectors(self.engine, tokens, self._outputs, bar=bar, texts=some, first=start)
                out[start : start + BLOCK] = block["logits"]
        return out

    def save(self, folder: str | Path, *, dtype: str = "float32") -> Path:
        """Writes a folder that `from_pretrained` and sentence-transformers' `CrossEncoder` read.

        Args:
          folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole.
          dtype: Dtype of the stored weights, `"float32"` or `"float16"`.
        """
        folder = Path(folder)
        model = self.engine.model()
        settings = {"activation_fn": _ACTIVATIONS[self.activation][0]}
        with io.whole_folder(folder, kind="cross-encoder") as whole:
            save_pair_classifier(model, whole, self.label_names, {"sentence_transformers": settings}, dtype)
            self.tokenizer.save(whole)
            io.write_json(whole / "config_sentence_transformers.json", {"model_type": "CrossEncoder", **settings})
        return folder
