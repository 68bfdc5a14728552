"""A head: the steps from the hidden states to a sentence's vector, and the names of poolings.

Some names take parameters after a colon: `layers:1+12`.

References:
  Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval" (first_last_avg).
  Gao et al. 2021, "SimCSE": first-last in that paper is `embeddings_last_avg` here.
  Huang et al. 2021, "WhiteningBERT: An Easy Unsupervised Sentence Embedding Approach", section 3 (layers).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import blocks, check_finite
from jaxwhiten.codes import Code
from jaxwhiten.errors import InputError, unknown_name, warn
from jaxwhiten.head.pooling import PLAIN_POOLINGS, AfterPrompt, LayerMix, Mean, Pooling
from jaxwhiten.head.steps import States, Step, facts, leaves
from jaxwhiten.head.vectors import Normalize, Quantize, Truncate, Whiten
from jaxwhiten.models import EncoderConfig
from jaxwhiten.text import PLAIN, BulkTokenizer, TextForm
from jaxwhiten.types import AnyArray, Float, Int, Shaped
from jaxwhiten.whitening import Whitening

if TYPE_CHECKING:
    from jaxwhiten.models import EncoderOutput, TransformerEncoder
    from jaxwhiten.models.graph import EncoderGraph

AUTO = "auto"  # the head that the model's folder describes, see `jaxwhiten.head.folder`
ALIASES = {"last_avg": "mean"}
_BLOCK_ROWS = 16384


class PoolingWarning(UserWarning):
    """A model folder does not define how its vectors are pooled, or another pooling leaves its whitening out."""


Steps = tuple[Step, ...]
Heads = Mapping[str, Steps]


@runtime_checkable
class PoolingSource(Protocol):
    """What a pooling may need of the encoder that it becomes part of."""

    @property
    def config(self) -> EncoderConfig: ...

    @property
    def tokenizer(self) -> BulkTokenizer: ...

    def model(self) -> TransformerEncoder: ...


Maker = Callable[[PoolingSource | None], Steps]  # of the encoder, or None where there is none
# Maps the text after the colon, or None, to its canonical form and a maker of steps; None if the text is not accepted.
Reader = Callable[[str | None], tuple[str, Maker] | None]


def _alone(*steps: Step) -> Reader:
    """A pooling without parameters."""
    return lambda parameters: ("", lambda source: steps) if parameters is None else None


def _mean_of(*layers: int) -> Steps:
    """Masked mean of an average of hidden states. Their sum, as in the paper's release, has the same cosines."""
    return (LayerMix(layers, np.ones(len(layers), np.float32)), Mean())


def layers(parameters: str | None) -> tuple[str, Maker]:
    """`layers:I+J+...`: masked mean of the average of these hidden states. 0 is the embedding output, -1 the last.

    The canonical form has "+" where "," is accepted, too, so that lists of names can use commas.
    """
    numbers = re.split(r"\s*[,+]\s*", (parameters or "").strip())
    if not all(re.fullmatch(r"-?\d{1,4}", number) for number in numbers):
        raise InputError(f"Pooling layers:{parameters or ''}: expected layers:I+J+..., such as layers:1+12.")
    return "+".join(str(int(number)) for number in numbers), lambda source: _mean_of(*map(int, numbers))


POOLINGS: dict[str, Reader] = {
    **{name: _alone(pooling()) for name, pooling in PLAIN_POOLINGS.items()},
    "first_last_avg": _alone(*_mean_of(1, -1)),
    "embeddings_last_avg": _alone(*_mean_of(0, -1)),
    "last2avg": _alone(*_mean_of(-1, -2)),
    "layers": layers,
}
"""Poolings by name; a name that is added is known everywhere."""


def parse(name: str) -> tuple[str, Maker]:
    """The canonical name of a pooling or alias, and a function that makes its steps."""
    kind, colon, parameters = ALIASES.get(name, name).partition(":")
    pooling = POOLINGS[kind](parameters if colon else None) if kind in POOLINGS else None
    if pooling is None:
        raise unknown_name("pooling", name, POOLINGS)
    registered, make = pooling
    return f"{kind}:{registered}" if registered else kind, make


def canonical(name: str) -> str:
    """The canonical name of a pooling or alias; `"auto"` stays `"auto"`, also in front of a name (`Head.name`).

    >>> canonical("last_avg")
    'mean'
    """
    if not isinstance(name, str):
        raise InputError(f"pooling={name!r:.80}: expected one name.")
    first, colon, rest = name.partition(":")
    if name == AUTO:
        return name
    if first == AUTO and colon:
        return f"{AUTO}:{parse(rest)[0]}"
    return parse(name)[0]


def pooling_names(pooling: str | Sequence[str] | None, own: str) -> tuple[Sequence[str], bool]:
    """The names of the poolings that a caller asks for, by default `own`, and whether it asks for a single one."""
    if pooling is None or isinstance(pooling, str):
        return [pooling or own], True
    if not pooling:
        raise InputError("pooling is an empty list: specify at least one.")
    return pooling, False


@dataclasses.dataclass(frozen=True)
class Head:
    """The steps after the hidden states: steps on states, one pooling, steps on vectors, in this order.

    `name` is the name of an equivalent pooling; `"auto"` if there is none; or `"auto:NAME"` for a folder's head with
    another pooling. `form` defines how sentences are written before they are tokenized.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> encoder.view.head.name
    'mean'
    """

    name: str
    steps: Steps
    form: TextForm = PLAIN

    @classmethod
    def named(cls, name: str, source: PoolingSource | None = None) -> Head:
        """The head for the name of a pooling in `jaxwhiten.POOLINGS`, for the encoder of `source`."""
        pooling, make = parse(name)
        steps = make(source)
        return cls(pooling, steps, _pooling(steps).form)

    @classmethod
    def of(cls, steps: Steps, form: TextForm = PLAIN) -> Head:
        """A head of any steps around one pooling; it gets the name of the pooling if it does nothing else."""
        pooling = _pooling(steps)
        alone = len(steps) == 1 and form == PLAIN and pooling.mode is not None
        return cls(str(pooling.mode) if alone else AUTO, steps, form if form != PLAIN else pooling.form)

    @property
    def code(self) -> Code | None:
        """The code that turns vectors into bytes in the last step, if there is one."""
        if isinstance(self.steps[-1], Quantize):
            return self.steps[-1].code
        return None

    @property
    def dtype(self) -> type[np.generic]:
        """The dtype of the result: float32, or uint8 if the head ends with a code."""
        return self.steps[-1].dtype

    @property
    def by_segment(self) -> bool:
        """Whether a row may hold several sentences."""
        return all(step.segmented for step in self.steps)

    def without_code(self) -> Head:
        """This head without its code; it encodes queries for coded documents."""
        if self.code is None:
            return self
        return Head.of(self.steps[:-1], self.form)

    def before_whitening(self) -> Head:
        """The steps before the last known whitening, or else before the code; they give the vectors of its fit."""
        places = [i for i, step in enumerate(self.steps) if isinstance(step, Whiten) and step.whitening is not None]
        if places:
            return Head.of(self.steps[: places[-1]], self.form)
        return self.without_code()

    def without_fitted(self) -> Head:
        """This head without the whitenings and the code fitted on its vectors; unit length at the end stays."""
        whole = self.without_code().steps
        steps = (*itertools.takewhile(lambda step: not isinstance(step, Whiten), whole),)
        if len(steps) == len(self.steps):
            return self
        if isinstance(whole[-1], Normalize) and not isinstance(steps[-1], Normalize):
            steps += (Normalize(),)
        return Head.of(steps, self.form)

    def finished(self, vectors: Float[np.ndarray, "n d"], begun: Head) -> Shaped[np.ndarray, "n k"]:
        """The result of this head, computed from the vectors of `begun`, a head with the first of its steps."""
        if not (rest := self.steps[len(begun.steps) :]):
            return vectors
        import jax.numpy as jnp

        (steps, code), vectors_of = before_code(rest), list[np.ndarray]()
        for part in blocks(len(vectors), _BLOCK_ROWS):
            x: Any = functools.reduce(lambda x, step: step(x), steps, jnp.asarray(vectors[part]))
            check_finite(np.asarray(x), part.start)
            vectors_of.append(np.asarray(x if code is None else code(x)))
        return np.concatenate(vectors_of)

    def with_pooling(self, named: Head, config: EncoderConfig) -> Head:
        """This head with the pooling of another one, or itself if that is its own.

        Later steps stay, except a whitening or code, which was fitted on the other vectors, and maps behind it.
        """
        (position, after), (pooling, _) = at_pooling(self.steps), at_pooling(named.steps)
        form = dataclasses.replace(named.form, lower_case=self.form.lower_case).with_prompt(self.form.prompt)
        if isinstance(position[-1], AfterPrompt) and type(form) is TextForm:
            pooling = (*pooling[:-1], AfterPrompt(pooling[-1], position[-1].length))
        if not (same := contents_in(position, config) == contents_in(pooling, config)):
            fitted = [i for i, step in enumerate(after) if isinstance(step, Whiten | Quantize)]
            if fitted:
                omitted = " and ".join(after[i].words() for i in fitted)
                words = f"pooling={named.name!r} omits {omitted}, fitted on a different pooling"
                warn(f"{words}. Refit with `jaxwhiten fit`.", PoolingWarning)
                more = (step for step in after[fitted[0] :] if isinstance(step, Normalize | Truncate))
                kept = itertools.groupby(
                    (*after[: fitted[0]], *more), lambda step: isinstance(step, Normalize) or id(step)
                )
                after = tuple(next(steps) for _, steps in kept)  # normalized once
        if not after and pooling == named.steps and form == named.form:
            return named
        if same:
            return self
        return Head(f"{AUTO}:{named.name}", pooling + after, form)

    def then(self, *steps: Step) -> Head:
        """This head with further steps at the end."""
        return dataclasses.replace(self, name=AUTO, steps=(*self.steps, *steps))

    def with_prompt(self, text: str) -> Head:
        """This head with another text in front of every sentence, or with none if the text is empty."""
        form = self.form.with_prompt(text)
        if form == self.form:
            return self
        return dataclasses.replace(self, name=AUTO, form=form)

    def width(self, config: EncoderConfig) -> int:
        """The width of the vectors; checks every step against the model, and that steps can be compared."""
        width = config.hidden_size
        facts(self.steps)
        if any(isinstance(step, Quantize) for step in self.steps[:-1]):
            raise InputError(f"{self.summary}: nothing can follow a code; put it last.")
        for step in self.steps:
            step.check(config)
            width = step.output_width(width)
        return width

    @functools.cached_property
    def summary(self) -> str:
        """The steps as text, which differs between heads unless they differ only in parameters."""
        form = [repr(self.form)] if self.form not in (PLAIN, _pooling(self.steps).form) else []
        return " > ".join([*(step.words() for step in self.steps), *form])

    @property
    def whitening(self) -> Whitening | None:
        """The last whitening among the steps that keeps its `Whitening`, or None."""
        whitenings = (step.whitening for step in reversed(self.steps) if isinstance(step, Whiten))
        return next(whitenings, None)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the steps, whatever the prompt."""
        return io.hashed(self.with_prompt("").contents())[:24]

    def contents(self) -> Iterator[bytes]:
        """Steps and parameters as bytes, for hashing."""
        yield self.summary.encode()
        for path, leaf in leaves(self.steps):
            yield path.encode()
            yield np.asarray(leaf, np.float32).tobytes()


def at_pooling(steps: Steps) -> tuple[Steps, Steps]:
    """The steps up to and including the pooling, and the steps after it.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> before, after = at_pooling(encoder.view.then(Normalize()).head.steps)
    >>> len(before), after
    (1, (Normalize(),))
    """
    end = 1 + next(i for i, step in enumerate(steps) if isinstance(step, Pooling))
    return steps[:end], steps[end:]


def contents_in(steps: Steps, config: EncoderConfig) -> list[bytes]:
    """Steps and parameters as bytes, however the layers of the model are counted."""
    mixes = [step.by_layer(config.num_layers) for step in steps if isinstance(step, LayerMix)]
    rest = tuple(step for step in steps if not isinstance(step, LayerMix))
    return [*(repr(mix).encode() for mix in mixes if mix), *Head("", rest).contents()]


def before_code(steps: Steps) -> tuple[Steps, Quantize | None]:
    """The steps that give vectors, and the code that rounds them, or None."""
    if steps and isinstance(steps[-1], Quantize):
        return (steps[:-1], steps[-1])
    return (steps, None)


def _pooling(steps: Steps) -> Pooling:
    poolings = [step for step in steps if isinstance(step, Pooling)]
    if len(poolings) != 1:
        raise InputError(f"A head has one pooling; this one has {len(poolings)}.")
    return poolings[0]


def run(
    steps: Steps,
    output: EncoderOutput,
    mask: Int[AnyArray, "batch length"],
    ids: Int[AnyArray, "batch length"] | None = None,
    segments: AnyArray = None,
) -> Shaped[AnyArray, "vectors k"]:
    """Applies the steps of a head to the encoder's output, see `pool`: float32, or uint8 after a code.

    The result has one vector per row, or with segments one per sentence, row by row.

    >>> encoder, ids = Encoder.from_pretrained("jaxwhiten-tiny"), jnp.array([[2, 9, 3]])
    >>> run(encoder.view.head.steps, encoder.view.core.model()(ids, jnp.ones_like(ids)), jnp.ones_like(ids)).shape
    (1, 256)
    """
    if segments is not None:
        mask = segments.members().astype(mask.dtype)
        ids = None if ids is None else ids[:, None]
    x: Any = States(output, mask, mask.astype(np.float32), ids, segments=segments)
    for step in steps:
        x = step(x)
        if isinstance(step, Pooling) and segments is not None:
            x = x.reshape(-1, x.shape[-1])
    return x


def write_steps(steps: Steps, encoder: EncoderGraph) -> str:
    """`run` as operators of a graph: adds the operators of the steps and returns the name of the result.

    >>> from jaxwhiten.models.graph import EncoderGraph, Graph
    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> graph = EncoderGraph(Graph(), encoder.view.core.model(), encoder.max_length)
    >>> write_steps(encoder.view.head.steps, graph).startswith("Div")
    True
    """
    mask = encoder.graph.op("Cast", "attention_mask", to=1)  # float32
    x: Any = States(encoder, "attention_mask", mask, "input_ids")
    for step in steps:
        x = step.to_onnx(encoder.graph, x)
    return str(x)
