"""An encoder, with its whitening, as a model that MTEB's own evaluator runs.

import mteb
from jaxwhiten.export.mteb import MTEBEncoder

model = MTEBEncoder(Encoder.from_pretrained("bert-base-uncased"), Whitening.load("whitening.safetensors"))
mteb.evaluate(model, mteb.get_tasks(["STS12", "STS16"]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from jaxwhiten import io
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import MismatchError, missing_dependency
from jaxwhiten.head import AUTO


@runtime_checkable
class Transform(Protocol):
    """What may follow the encoder: a fitted `Whitening` or another method of `jaxwhiten.methods`."""

    def transform(self, X: Any) -> np.ndarray:
        """Rows to rows."""
        ...


class MTEBEncoder:
    """An encoder as `mteb.evaluate` takes it (MTEB 2, `EncoderProtocol`).

    MTEB's prompts are not used: the encoders here were not trained with any. Vectors are compared by cosine.

    Args:
      encoder: An `Encoder`, or what `Encoder.from_pretrained` reads.
      whitening: Applied to every vector; None for raw ones.
      pooling: A name of `jaxwhiten.POOLINGS`; by default the encoder's.
      batch_size: At most this many sentences per batch; by default a token budget decides. The 32 that MTEB passes
        unasked is not used.
      name: The name results are filed under, `ORGANISATION/MODEL`; by default made of the encoder's.

    Raises:
      MismatchError: The whitening takes vectors of another width.
      MissingDependencyError: MTEB is not installed.
    """

    def __init__(
        self,
        encoder: Encoder | str | Path,
        whitening: Transform | None = None,
        *,
        pooling: str | None = None,
        batch_size: int | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(encoder, Encoder):
            encoder = Encoder.from_pretrained(encoder, pooling=pooling or AUTO)
        self.encoder = encoder
        self.whitening = whitening
        self.pooling = pooling or encoder.pooling
        self.batch_size = batch_size
        width, takes = encoder.width(self.pooling), getattr(whitening, "n_features_in_", None)
        if takes is not None and takes != width:
            raise MismatchError(f"The whitening takes vectors of {takes} dimensions; {encoder.name} gives {width}.")
        self.mteb_model_meta = self._meta(name or _organised(encoder.name))

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, show_progress_bar: bool = False, **about: Any
    ) -> Float[np.ndarray, "n k"]:
        """Encodes the texts of a task.

        Args:
          inputs: Batches as MTEB's data loader gives them; only their `text` is read.
          show_progress_bar: Whether to show one.
          **about: The task, split, subset and prompt type, and further options of MTEB's; not used.

        Returns:
          One vector per text, in order.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        vectors = self.encoder.encode(
            texts, pooling=self.pooling, batch_size=self.batch_size, show_progress=show_progress_bar
        )
        return vectors if self.whitening is None else self.whitening.transform(vectors)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of all rows of one array with all of another, as the tensor MTEB expects."""
        return _mteb("similarity_functions").cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of rows with the rows of the same number, as the tensor MTEB expects."""
        return _mteb("similarity_functions").pairwise_cos_sim(embeddings1, embeddings2)

    def _meta(self, name: str) -> Any:
        """The model as MTEB knows it. MTEB keeps results by name and revision: another pooling, whitening or length is
        another revision, so that no result is taken for that of another setting."""
        module = _mteb("models.model_meta")
        encoder, setting = self.encoder, {"pooling": self.pooling, "whitening": self._whitening_facts()}
        dimension = encoder.width(self.pooling)
        if self.whitening is not None:
            dimension = self.whitening.transform(np.zeros((1, dimension), np.float32)).shape[1]
        key = io.content_key(
            encoder.fingerprint, encoder.max_length, encoder.dtype, self.pooling, self._whitening_key()
        )
        facts = {
            "name": name,
            "revision": io.content_key(*key),
            "max_tokens": encoder.max_length,
            "embed_dim": int(dimension),
            "framework": ["JAX"],
            "similarity_fn_name": module.ScoringFunction.COSINE,
            "use_instructions": False,
            "experiment_kwargs": {name: value for name, value in setting.items() if value},
        }
        return module.ModelMeta.create_empty(facts)

    def _whitening_facts(self) -> str:
        """The whitening in words, for the name of the experiment."""
        if self.whitening is None:
            return ""
        params = self.whitening.get_params() if hasattr(self.whitening, "get_params") else {}
        shown = "-".join(f"{key}{value}" for key, value in params.items() if isinstance(value, int | float))
        return "-".join(filter(None, (type(self.whitening).__name__, shown)))

    def _whitening_key(self) -> str:
        """A hash of what the whitening does to a fixed set of vectors."""
        if self.whitening is None:
            return ""
        d = self.encoder.width(self.pooling)
        probe = np.random.default_rng(0).standard_normal((8, d), dtype=np.float32)
        return io.content_key(np.asarray(self.whitening.transform(probe), np.float32).round(4).tolist())


def _organised(name: str) -> str:
    """`ORGANISATION/MODEL` from a hub id or a folder."""
    parts = [part for part in Path(name).parts if part not in ("/", ".", "..")]
    return name if len(parts) == 2 and not Path(name).is_absolute() else f"local/{parts[-1] if parts else 'model'}"


def _mteb(module: str) -> Any:
    """A module of MTEB's, imported when it is needed."""
    import importlib

    try:
        return importlib.import_module(f"mteb.{module}")
    except ImportError as error:
        raise missing_dependency("mteb", "mteb", "MTEBEncoder") from error
