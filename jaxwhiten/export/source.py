"""What is exported: a model's folder, its weights, and what is done to its hidden states."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path

from jaxwhiten.errors import InputError, MismatchError, unknown_name
from jaxwhiten.head.folder import SentenceHead, resolve_auto
from jaxwhiten.head.pooling import AUTO, canonical, resolve
from jaxwhiten.models import TransformerEncoder, load_model, resolve_folder
from jaxwhiten.models.loading import has_tokenizer
from jaxwhiten.whitening.whitening import Whitening

DEFAULT_MAX_LENGTH = 64
TOKEN_POOLINGS = ("cls", "mean", "max")
_MIXES = {"first_last_avg": (1, -1), "embeddings_last_avg": (0, -1), "last2avg": (-1, -2)}


@dataclasses.dataclass(frozen=True)
class Source:
    """A model to be exported.

    Attributes:
      folder: The model's folder.
      model: The encoder.
      tokenizer_folder: Where the tokenizer lies.
      pooling: A name of `POOLINGS`, or `"auto"` where the folder does more than a plain pooling.
      head: What `"auto"` stands for.
      max_length: Longest sentence in tokens.
    """

    folder: Path
    model: TransformerEncoder
    tokenizer_folder: Path
    pooling: str
    head: SentenceHead | None
    max_length: int

    @property
    def width(self) -> int:
        """Of the vectors before whitening."""
        return self.head.width if self.head is not None else self.model.config.hidden_size

    def check_whitening(self, whitening: Whitening | None) -> None:
        """Refuses a whitening of vectors of another width.

        Raises:
          MismatchError: It is.
        """
        if whitening is not None and whitening.n_features_in_ != self.width:
            raise MismatchError(
                f"The whitening takes vectors of {whitening.n_features_in_} dimensions; the model gives {self.width}."
            )


def load_source(
    model: str | Path, *, pooling: str = AUTO, max_length: int | None = None, revision: str | None = None
) -> Source:
    """Reads what `Encoder.from_pretrained` would read.

    Args:
      model: A local folder or a hub id.
      pooling: A name of `POOLINGS`, `layers:I+J+...`, or `"auto"`.
      max_length: Longest sentence in tokens; by default what the folder says with `"auto"`, else 64.
      revision: Commit, tag or branch on the hub.

    Returns:
      The model with its pooling.

    Raises:
      ModelError: Something in the folder cannot be read.
      InputError: An unknown pooling, or a length the model cannot take.
    """
    pooling = canonical(pooling)
    folder = resolve_folder(model, revision=revision)
    module, config, weights = load_model(folder)
    if pooling != AUTO:
        resolve(pooling).check(config)
    pooling, head, max_length = resolve_auto(folder, config, pooling, max_length)
    length = DEFAULT_MAX_LENGTH if max_length is None else max_length
    if not 3 <= length <= config.longest_input:
        raise InputError(f"max_length is {length}; this model takes 3 to {config.longest_input} tokens.")
    return Source(folder, module, weights if has_tokenizer(weights) else folder, pooling, head, length)


def check_pooling(pooling: str) -> str:
    """The pooling's own name, if other libraries can say it: tokens pooled, or hidden states averaged and pooled.

    Raises:
      InputError: They cannot; the message gives those they can.
    """
    name = canonical(pooling)
    if name not in (*TOKEN_POOLINGS, *_MIXES) and not name.startswith("layers:"):
        raise unknown_name("pooling of an exported model", pooling, [*TOKEN_POOLINGS, *_MIXES, "layers:I+J+..."])
    return name


def layer_weights(pooling: str, num_layers: int) -> dict[int, int] | None:
    """The hidden states that a pooling averages before it takes the mean over tokens.

    Args:
      pooling: A name that `check_pooling` passes.
      num_layers: Of the model.

    Returns:
      Weights by the number of the hidden state, 0 for the embedding output; None where it is the last state alone.
    """
    name = check_pooling(pooling)
    if name in TOKEN_POOLINGS:
        return None
    chosen = _MIXES[name] if name in _MIXES else [int(i) for i in name.removeprefix("layers:").split("+")]
    weights = collections.Counter(i % (num_layers + 1) for i in chosen)
    return None if set(weights) == {num_layers} else dict(sorted(weights.items()))
