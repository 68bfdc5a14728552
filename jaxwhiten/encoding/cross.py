"""Scores of sentence pairs by a model that reads both sentences at once: for re-ranking, and for classification.

    model = CrossEncoder.from_pretrained("folder")
    scores = model.predict([("A man plays a guitar.", "Someone makes music.")])  # float32 [1]

Batches, compiled programs and layout are those of `Encoder`.

References:
  Nogueira & Cho 2019, "Passage Re-ranking with BERT".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float32, Int

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.encoding.forward import Forward
from jaxwhiten.encoding.stream import BLOCK, BatchRunner, ReadyHead, progress
from jaxwhiten.errors import InputError, ModelError, spelled
from jaxwhiten.head import Head
from jaxwhiten.models import PairClassifier, label_names, load_pair_classifier, loading, save_pair_classifier
from jaxwhiten.runtime.compilation import keep_compiled
from jaxwhiten.text import PairTokenizer, TokenIds, copy_tokenizer

Scores = np.ndarray
_ACTIVATIONS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "Sigmoid": ("torch.nn.modules.activation.Sigmoid", lambda x: 1 / (1 + np.exp(-np.clip(x, -80, None)))),
    "Identity": ("torch.nn.modules.linear.Identity", lambda x: x),
}


class CrossEncoder:
    """A classifier of sentence pairs with its tokenizer.

    Usually made by `from_pretrained`; the constructor takes the parts, for models made in memory.

    Args:
      model: A Flax NNX classifier (`jaxwhiten.models.PairClassifier`).
      tokenizer_folder: Where its tokenizer lies.
      max_length: Longest pair in tokens, special tokens counted; of longer ones the longer sentence is cut first.
      activation: `"Sigmoid"` or `"Identity"`, of the logits; by default `"Sigmoid"` for one label, else `"Identity"`.
      label_names: Names of the labels.
      name: What the model is called in messages.
      device: As in `Encoder`.
    """

    def __init__(
        self,
        model: PairClassifier,
        tokenizer_folder: str | Path,
        *,
        max_length: int = 128,
        activation: str | None = None,
        label_names: Sequence[str] = (),
        name: str = "",
        device: str | jax.Device | None = None,
    ):
        config = model.config
        if not 5 <= max_length <= config.longest_input:
            raise InputError(
                f"{spelled('max_length')} is {max_length}; this model takes 5 to {config.longest_input} tokens."
            )
        self.name, self.max_length, self.labels = name or str(tokenizer_folder), max_length, model.labels
        self.label_names = tuple(label_names)
        self.activation = activation or ("Sigmoid" if model.labels == 1 else "Identity")
        self.tokenizer = PairTokenizer(Path(tokenizer_folder), max_length, config.vocab_size)
        self._tokenizer_folder = Path(tokenizer_folder)
        self._forward = Forward(model, device)  # type: ignore[arg-type]
        self._runner = BatchRunner(self._forward, max_length, config.pad_token_id)
        head = Head.named("pooler")  # where a classifier's output has its logits
        self._heads = {"logits": ReadyHead(head, head.steps, model.labels)}
        keep_compiled()

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        max_length: int | None = None,
        dtype: str = "float32",
        revision: str | None = None,
        device: str | jax.Device | None = None,
    ) -> CrossEncoder:
        """Reads a cross-encoder from a local folder or the hub, as sentence-transformers writes it.

        Args:
          model: Folder or hub id.
          max_length: Longest pair in tokens; by default what the folder's tokenizer says.
          dtype: Dtype of matrix products, `"float32"` or `"bfloat16"`.
          revision: Commit, tag or branch on the hub.
          device: As in the constructor.

        Raises:
          ModelError: The folder cannot be read, has no classifier, or asks for an activation or prompt that is not
            supported.
          InputError: A `max_length` that the model cannot take.
        """
        folder = loading.resolve_folder(model, revision=revision)
        classifier, folder = load_pair_classifier(folder, dtype=dtype)
        said = _optional(folder / "config_sentence_transformers.json")
        if said.get("default_prompt_name"):
            raise ModelError(f"{folder}: a default prompt of pairs is not supported; take it out of the folder.")
        config = _optional(folder / "config.json")
        own = config.get("sentence_transformers")
        path = said.get("activation_fn") or (own.get("activation_fn") if isinstance(own, dict) else None)
        path = path or config.get("sbert_ce_default_activation_function")
        activation = str(path).rpartition(".")[2] if path else None
        if activation is not None and activation not in _ACTIVATIONS:
            raise ModelError(f"{folder}: the activation {path!r} is not supported; {', '.join(_ACTIVATIONS)} are.")
        longest = classifier.config.longest_input
        if max_length is None:
            told = _optional(folder / "tokenizer_config.json").get("model_max_length")
            max_length = min(int(told), longest) if isinstance(told, int | float) else longest
        names = label_names(folder, classifier.labels)
        return cls(
            classifier,
            folder,
            max_length=max_length,
            activation=activation,
            label_names=names,
            name=str(model),
            device=device,
        )

    def predict(
        self,
        pairs: Sequence[Sequence[str]],
        *,
        activation: str | None = None,
        apply_softmax: bool = False,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Scores:
        """Scores pairs.

        Args:
          pairs: Pairs of sentences, or one.
          activation: In place of the model's own.
          apply_softmax: Whether the scores of a pair's labels are made to sum to 1; for several labels.
          batch_size: At most this many pairs per batch; by default a token budget decides.
          show_progress: True or False; None shows a bar on a terminal when it takes over a second.

        Returns:
          float32 [n] for one label, else [n, labels]; without the first axis for one pair.

        Raises:
          InputError: An item is not a pair of strings, or an unknown activation.
        """
        alone = len(pairs) == 2 and all(isinstance(text, str) for text in pairs)
        rows = [pairs] if alone else list(pairs)
        if bad := next((i for i, row in enumerate(rows) if isinstance(row, str) or len(row) != 2), None):
            raise InputError(f"Item {bad} is {rows[bad]!r:.60}; expected a pair of sentences.")
        activation = activation or self.activation
        if activation not in _ACTIVATIONS:
            raise InputError(f"activation is {activation!r}; expected one of {', '.join(_ACTIVATIONS)}.")
        numbers: dict[Any, int] = {}
        places = np.array([[numbers.setdefault(text, len(numbers)) for text in row] for row in rows], int)
        tokens = self.tokenizer.sentences(list(numbers))
        scores = self._logits(tokens, *places.reshape(-1, 2).T, batch_size, show_progress)
        scores = _ACTIVATIONS[activation][1](scores).astype(np.float32)
        if apply_softmax and self.labels > 1:
            scores = np.asarray(jax.nn.softmax(scores, axis=-1))
        scores = scores[:, 0] if self.labels == 1 else scores
        return scores[0] if alone else scores

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, *, return_documents: bool = False
    ) -> list[dict[str, Any]]:
        """Documents by their score with a query.

        Args:
          query: The query.
          documents: The documents.
          top_k: How many are returned; all by default.
          return_documents: Whether their texts are returned, too.

        Returns:
          For each a dict of `corpus_id`, `score` and, if asked for, `text`, best first.

        Raises:
          InputError: A model with several labels, or an item that is not a string.
        """
        ids = np.arange(len(documents))[None]
        scores, ids = self.rerank([query], documents, ids, show_progress=False)
        found = [{"corpus_id": i, "score": s} for i, s in zip(ids[0].tolist(), scores[0].tolist(), strict=True)][:top_k]
        return [{**hit, "text": documents[hit["corpus_id"]]} for hit in found] if return_documents else found

    def rerank(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        ids: Int[np.ndarray, "q k"],
        *,
        show_progress: bool | None = None,
    ) -> tuple[Float32[np.ndarray, "q k"], Int[np.ndarray, "q k"]]:
        """Puts the results of a search in the order of their pair scores; each text is tokenised once.

        Args:
          queries: The queries.
          documents: Texts of the documents.
          ids: The documents found for each query, as `Index.search` gives them; −1 for none.
          show_progress: As in `predict`.

        Returns:
          Scores and ids, best first; −1 comes last, with a score of −inf.

        Raises:
          InputError: A model with several labels, or as many rows of results as there are not queries.
        """
        if self.labels != 1:
            raise InputError(f"{self.name} has {self.labels} labels; ranking takes a model with one score per pair.")
        if len(ids) != len(queries):
            raise InputError(f"{len(queries)} queries, but {len(ids)} rows of results.")
        there = ids >= 0
        used, second = np.unique(ids[there], return_inverse=True)
        tokens = self.tokenizer.sentences([*queries, *(documents[i] for i in used.tolist())])
        logits = np.full(ids.shape, -np.inf, np.float32)
        first = np.nonzero(there)[0]
        logits[there] = self._logits(tokens, first, len(queries) + second, None, show_progress)[:, 0]
        order = np.argsort(-logits, axis=1, kind="stable")
        found = np.take_along_axis(logits, order, axis=1)
        scores = np.where(np.isfinite(found), _ACTIVATIONS[self.activation][1](found), -np.inf)
        return scores.astype(np.float32), np.take_along_axis(ids, order, axis=1)

    def _logits(
        self,
        sentences: TokenIds,
        first: Int[np.ndarray, " n"],
        second: Int[np.ndarray, " n"],
        batch_size: int | None,
        show: bool | None,
    ) -> Float32[np.ndarray, "n labels"]:
        """The logits of pairs, joined, sorted by length and scored a block at a time."""
        out = np.empty((len(first), self.labels), np.float32)
        with progress(len(first), show) as bar:
            for start in range(0, len(first), BLOCK):
                part = slice(start, start + BLOCK)
                tokens = self.tokenizer.join(sentences, first[part], second[part])
                out[part] = self._runner.run(tokens, self._heads, batch_size, bar.update)["logits"]
        return out

    def save(self, folder: str | Path, *, dtype: str = "float32", card: str | None = None) -> Path:
        """Writes a folder that `from_pretrained` and sentence-transformers' `CrossEncoder` read.

        Args:
          folder: Made if missing; files of the same names are replaced.
          dtype: Dtype of the stored weights, `"float32"` or `"float16"`.
          card: Text of README.md; none is written without it.

        Returns:
          The folder.
        """
        folder = Path(folder)
        said = {"activation_fn": _ACTIVATIONS[self.activation][0]}
        model: Any = self._forward.model()
        save_pair_classifier(model, folder, self.label_names, {"sentence_transformers": said}, dtype=dtype)
        if folder.resolve() != self._tokenizer_folder.resolve():
            copy_tokenizer(self._tokenizer_folder, folder)
        settings = _optional(folder / "tokenizer_config.json")
        io.write_json(folder / "tokenizer_config.json", {**settings, "model_max_length": self.max_length})
        version = {"__version__": {"jaxwhiten": __version__}, "model_type": "CrossEncoder", "prompts": {}}
        io.write_json(folder / "config_sentence_transformers.json", {**version, "default_prompt_name": None, **said})
        if card is not None:
            io.write_text(folder / "README.md", card)
        return folder


def _optional(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or nothing where there is no file."""
    return loading.read_json(path) if path.is_file() else {}
