"""A head: the steps from the hidden states to a sentence's vector, under a name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from jaxwhiten.codes import Code
from jaxwhiten.errors import InputError
from jaxwhiten.head.names import AUTO, Steps, Tables, parse
from jaxwhiten.head.pooling import Pooling
from jaxwhiten.head.steps import States, Step
from jaxwhiten.head.vectors import Quantise, Whiten
from jaxwhiten.models import EncoderConfig, EncoderOutput
from jaxwhiten.models.graph import EncoderGraph
from jaxwhiten.models.packing import Segments
from jaxwhiten.text import PLAIN, TextForm
from jaxwhiten.whitening import Whitening


@dataclasses.dataclass(frozen=True)
class Head:
    """What is done after the hidden states: steps on states, one pooling, steps on vectors, in this order.

    `name` is the pooling it amounts to, or `"auto"` for a head of more steps; `form` says how sentences are written
    before they are tokenised.
    """

    name: str
    steps: Steps
    form: TextForm = PLAIN

    @classmethod
    def named(cls, name: str, tables: Tables | None = None) -> Head:
        """The head that the name of a pooling, as in `jaxwhiten.POOLINGS`, is short for."""
        own, make = parse(name)
        steps = make(tables or Tables())
        return cls(own, steps, _pooling(steps).form)

    @classmethod
    def of(cls, steps: Steps, form: TextForm = PLAIN) -> Head:
        """A head of any steps around one pooling; one that does no more than a pooling gets its name."""
        pooling = _pooling(steps)
        alone = len(steps) == 1 and form == PLAIN and pooling.mode is not None
        return cls(str(pooling.mode) if alone else AUTO, steps, form if form != PLAIN else pooling.form)

    @property
    def code(self) -> Code | None:
        """The code that turns vectors into bytes in the last step, if there is one."""
        return self.steps[-1].code if isinstance(self.steps[-1], Quantise) else None

    @property
    def dtype(self) -> type[np.generic]:
        """Of what the head gives: float32, or uint8 behind a code."""
        return self.steps[-1].dtype

    @property
    def by_segment(self) -> bool:
        """Whether rows may hold several sentences."""
        return all(step.segmented for step in self.steps)

    def without_code(self) -> Head:
        """This head up to the vectors: what queries of coded documents are encoded by."""
        return self if self.code is None else Head.of(self.steps[:-1], self.form)

    def before_whitening(self) -> Head:
        """This head up to its last known whitening: what gives the vectors that it was fitted on."""
        places = [i for i, step in enumerate(self.steps) if isinstance(step, Whiten) and step.whitening is not None]
        return Head.of(self.steps[: places[-1]], self.form) if places else self

    def then(self, *steps: Step) -> Head:
        """This head with further steps at its end."""
        return dataclasses.replace(self, name=AUTO, steps=(*self.steps, *steps))

    def with_prompt(self, text: str) -> Head:
        """This head with another text in front of every sentence; none for an empty one."""
        form = self.form.with_prompt(text)
        return self if form == self.form else dataclasses.replace(self, name=AUTO, form=form)

    def width(self, config: EncoderConfig) -> int:
        """Width of the vectors, after every step was checked against the model."""
        width = config.hidden_size
        if any(isinstance(step, Quantise) for step in self.steps[:-1]):
            raise InputError(f"{self.summary}: nothing can follow a code; put it at the end.")
        for step in self.steps:
            step.check(config)
            width = step.output_width(width)
        return width

    @functools.cached_property
    def summary(self) -> str:
        """What the head does, in words that differ for heads that differ in more than parameters."""
        form = [repr(self.form)] if self.form not in (PLAIN, _pooling(self.steps).form) else []
        return " > ".join([*(step.words() for step in self.steps), *form])

    @property
    def whitening(self) -> Whitening | None:
        """The last whitening among the steps, where it is known as such."""
        found = (step.whitening for step in reversed(self.steps) if isinstance(step, Whiten))
        return next(found, None)

    def contents(self) -> Iterator[bytes]:
        """Steps and parameters as bytes, to be hashed."""
        yield self.summary.encode()
        for path, leaf in jax.tree.leaves_with_path(self.steps):
            yield jax.tree_util.keystr(path).encode()
            yield np.asarray(leaf, np.float32).tobytes()


def at_pooling(steps: Steps) -> tuple[Steps, Steps]:
    """The steps up to the pooling, which is the last of them, and those after it."""
    end = 1 + next(i for i, step in enumerate(steps) if isinstance(step, Pooling))
    return steps[:end], steps[end:]


def _pooling(steps: Steps) -> Pooling:
    found = [step for step in steps if isinstance(step, Pooling)]
    if len(found) != 1:
        raise InputError(f"A head has one pooling; this one has {len(found)}.")
    return found[0]


def run(
    steps: Steps,
    output: EncoderOutput,
    mask: Int[Array, "batch length"],
    ids: Int[Array, "batch length"] | None = None,
    segments: Segments | None = None,
) -> Shaped[Array, "vectors k"]:
    """Applies the steps of a head to what the encoder returned, see `pool`: float32, or uint8 behind a code.

    One vector per row; with segments one per sentence of each row, those of the first row first.
    """
    if segments is not None:
        mask = segments.members().astype(mask.dtype)
        ids = None if ids is None else ids[:, None]
    x: Any = States(output, mask, mask.astype(jnp.float32), ids, segments=segments)
    for step in steps:
        x = step(x)
        if isinstance(step, Pooling) and segments is not None:
            x = x.reshape(-1, x.shape[-1])
    return x


def write_steps(steps: Steps, encoder: EncoderGraph) -> str:
    """`run` as operators of a graph: adds those of the steps, and gives the name of the result."""
    mask = encoder.graph.op("Cast", "attention_mask", to=1)  # float32
    x: Any = States(encoder, "attention_mask", mask, "input_ids")
    for step in steps:
        x = step.to_onnx(encoder.graph, x)
    return str(x)


def pool(
    output: EncoderOutput,
    mask: Int[Array, "batch length"],
    names: Sequence[str] = ("mean",),
    *,
    ids: Int[Array, "batch length"] | None = None,
    mask_token: int | None = None,
    idf: Mapping[str, Float[Array, " vocab"]] | None = None,
) -> dict[str, Float[Array, "batch d"]]:
    """Applies poolings, or aliases of them, by name: one float32 array for each.

    The mask is 1 for tokens and 0 for padding. `promptbert` needs the token ids and the id of the mask token, `idf` the
    ids and weights of all of them by the table's name.
    """
    tables = Tables(mask_token, idf or {})
    return {name: run(Head.named(name, tables).steps, output, mask, ids) for name in names}
