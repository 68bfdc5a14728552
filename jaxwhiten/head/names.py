"""Names of poolings: one table, short for the first steps of a head.

Some take parameters after a colon: `layers:1+12`, `ditto:0+9`, `promptbert:…`, `idf:…`. `"auto"` stands for what the
model's own folder says, see `jaxwhiten.head.folder`.

References:
  Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval" (first_last_avg).
  Gao et al. 2021, "SimCSE": what that paper calls first-last is `embeddings_last_avg` here.
  Huang et al. 2021, "WhiteningBERT: An Easy Unsupervised Sentence Embedding Approach", section 3 (layers).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxwhiten.errors import InputError, unknown_name
from jaxwhiten.head.pooling import PLAIN_POOLINGS, Ditto, MaskToken, Mean
from jaxwhiten.head.states import LayerMix, TokenWeights
from jaxwhiten.head.steps import Step

AUTO = "auto"
PROMPTBERT_TEMPLATE = 'This sentence : "{text}" means {mask} .'

ALIASES = {"last_avg": "mean"}

Steps = tuple[Step, ...]


@dataclasses.dataclass(frozen=True)
class Tables:
    """What the name of a pooling may refer to: the id of the mask token, and float32 [vocab] weights by their name."""

    mask_id: int | None = None
    idf: Mapping[str, Any] = dataclasses.field(default_factory=dict)


Maker = Callable[[Tables], Steps]
# From what follows the colon, None without one, to its canonical form and to the steps; None where it takes none.
Reader = Callable[[str | None], tuple[str, Maker] | None]


def _alone(*steps: Step) -> Reader:
    """A pooling without parameters."""
    return lambda parameters: ("", lambda tables: steps) if parameters is None else None


def _mean_of(*layers: int) -> Steps:
    """Masked mean of an average of hidden states. The release sums them; no cosine and no whitening differs."""
    return (LayerMix(layers, np.ones(len(layers), np.float32)), Mean())


def _integers(name: str, parameters: str | None, usage: str, count: int | None = None) -> list[int]:
    """Whole numbers between "+" or ",". The canonical form has "+", so that names can stand in a list with commas."""
    numbers = re.split(r"\s*[,+]\s*", (parameters or "").strip())
    if not all(re.fullmatch(r"-?\d{1,4}", n) for n in numbers) or (count and len(numbers) != count):
        raise InputError(f"Pooling {name}:{parameters or ''}: expected {usage}.")
    return [int(n) for n in numbers]


def layers(parameters: str | None) -> tuple[str, Maker]:
    """`layers:I+J+...`: masked mean of the average of these hidden states. 0 is the embedding output, -1 the last."""
    chosen = _integers("layers", parameters, "layers:I+J+..., such as layers:1+12")
    return "+".join(map(str, chosen)), lambda tables: _mean_of(*chosen)


def ditto(parameters: str | None) -> tuple[str, Maker]:
    """`ditto:LAYER+HEAD`, see `Ditto`."""
    layer, head = _integers("ditto", parameters, "ditto:LAYER+HEAD, such as ditto:0+9 for bert-base", 2)
    return f"{layer}+{head}", lambda tables: (Ditto(layer, head),)


def promptbert(parameters: str | None) -> tuple[str, Maker]:
    """`promptbert`: the mask token in a template around the sentence; `promptbert:TEMPLATE` takes another template."""
    template = parameters or PROMPTBERT_TEMPLATE
    if any(template.count(place) != 1 for place in ("{text}", "{mask}")):
        raise InputError(f"Pooling promptbert:{template}: expected a template with {{text}} and {{mask}}, each once.")

    def steps(tables: Tables) -> Steps:
        if tables.mask_id is None:
            raise InputError("Pooling 'promptbert' needs a mask token, and the model's tokenizer has none.")
        return (MaskToken(template, tables.mask_id),)

    return parameters or "", steps


def idf(parameters: str | None) -> tuple[str, Maker]:
    """`idf:TABLE`: mean of the last layer, each token weighted by its inverse document frequency.

    `Encoder.fit_idf` makes the table and gives the name.
    """
    if not parameters:
        raise InputError(
            "Pooling 'idf' weighs tokens by how many sentences they occur in: call Encoder.fit_idf(sentences) and "
            "use the name it returns."
        )

    def steps(tables: Tables) -> Steps:
        if parameters not in tables.idf:
            raise InputError(
                f"Pooling 'idf:{parameters}' needs its table of weights: call fit_idf with the same sentences."
            )
        return (TokenWeights(tables.idf[parameters], parameters), Mean())

    return parameters, steps


POOLINGS: dict[str, Reader] = {
    **{name: _alone(pooling()) for name, pooling in PLAIN_POOLINGS.items()},
    "first_last_avg": _alone(*_mean_of(1, -1)),
    "embeddings_last_avg": _alone(*_mean_of(0, -1)),
    "last2avg": _alone(*_mean_of(-1, -2)),
    "layers": layers,
    "ditto": ditto,
    "promptbert": promptbert,
    "idf": idf,
}
"""Poolings by name."""


def parse(name: str) -> tuple[str, Maker]:
    """The canonical name of a pooling or alias, and what gives the steps it is short for."""
    kind, colon, parameters = ALIASES.get(name, name).partition(":")
    found = POOLINGS[kind](parameters if colon else None) if kind in POOLINGS else None
    if found is None:
        raise unknown_name("pooling", name, POOLINGS)
    taken, make = found
    return f"{kind}:{taken}" if taken else kind, make


def canonical(name: str) -> str:
    """The pooling's own name for a name or alias; `"auto"` is its own."""
    return name if name == AUTO else parse(name)[0]
