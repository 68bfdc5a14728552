"""The steps of a head: one small class for each thing that is done after the hidden states.

A step owns all there is to know of it: its JAX function, what it asks of the model, its parameters, its modules in a
sentence-transformers folder, its ONNX operators, and its words for a model card. A new step is a class with the
decorator `step`; nothing else has to know of it. What it does not define, it refuses in words:

    @step
    class Scale(VectorStep):
        factor: float

        def __call__(self, x):
            return x * self.factor
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from jaxtyping import Float, Int

from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.lazy import Array, jax, jnp, with_jax
from jaxwhiten.models import EncoderConfig, loading
from jaxwhiten.models.packing import Segments
from jaxwhiten.text import BulkTokenizer

# Files beside the modules that other libraries read: what a Dense layer follows from, and what codes their vectors.
WHITENING_FILE, CODE_FILE = "whitening.safetensors", "code.safetensors"

Vectors = Float[Array, "batch d"]
Mapped = Float[Array, "batch k"]


def array(default: Any = dataclasses.MISSING) -> Any:
    """A field of a step that holds parameters: a leaf of its pytree. Other fields are static."""
    return dataclasses.field(default=default, metadata={"kind": "array"})


def record(default: Any = None) -> Any:
    """A field of a step that plays no part in the computation and is left out of the compiled function."""
    return dataclasses.field(default=default, metadata={"kind": "record"}, compare=False)


@dataclasses.dataclass(frozen=True)
class States:
    """What the steps before the pooling work on: hidden states, how they are mixed, and how much each token counts.

    In an ONNX graph names of values stand for arrays. Where rows hold several sentences, `segments` says which,
    `*batch` is rows and sentences, `*rows` is rows and 1, and hidden states are [rows, length, d]; only steps that are
    `segmented` see it.
    """

    output: Any  # `EncoderOutput`, or in a graph `EncoderGraph`
    mask: Any  # int [*batch, length], 1 for tokens, 0 for padding
    weights: Any  # float32 [*batch, length], how much each token counts: the mask, unless a step says otherwise
    ids: Any = None  # int [*rows, length], or None where they are not at hand
    mix: tuple[tuple[int, Any], ...] = ((-1, 1.0),)  # numbers of hidden states and their shares, which sum to 1
    start: Any = 0  # position of the first token that is pooled, behind a prompt that is left out
    segments: Segments | None = None

    @property
    def positions(self) -> Int[Array, "*rows length"]:
        """Place of each token in its sentence."""
        return jnp.arange(self.mask.shape[-1]) if self.segments is None else self.segments.position[:, None]

    def place(self, position: Any) -> Int[Array, "*batch"]:
        """Place in its row of each sentence's token at a position."""
        if self.segments is None:
            return jnp.broadcast_to(position, self.mask.shape[:-1])
        return jnp.minimum(self.segments.first + position, self.mask.shape[-1] - 1)

    def mixed(self, graph: Any) -> str:
        """Name of the mixed hidden state in a graph."""
        hidden = self.output.hidden_states
        parts = [graph.op("Mul", hidden[layer], graph.number(float(share))) for layer, share in self.mix]
        return parts[0] if len(parts) == 1 else str(graph.op("Sum", *parts))


@dataclasses.dataclass(frozen=True)
class Module:
    """One module of a sentence-transformers folder: a class of `sentence_transformers.models` and its files."""

    kind: str
    config: Mapping[str, Any] | None = None
    tensors: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    # Entries it needs in the `config.json` of the Transformer.
    transformer: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Target:
    """What a step may know of the folder it is written to: the encoder, and the width of vectors before the step."""

    config: EncoderConfig
    width: int
    tokenizer: BulkTokenizer


@dataclasses.dataclass(frozen=True)
class Found:
    """A module found in a sentence-transformers folder."""

    folder: Path  # of the module
    model: Path  # of all modules
    transformer: Path  # of the first one
    config: EncoderConfig
    width: int  # of the vectors before the module

    @property
    def file(self) -> Path:
        return self.folder / "config.json"

    def read(self) -> dict[str, Any]:
        return loading.read_json(self.file)

    def refuse_other_names(self, raw: Mapping[str, Any]) -> None:
        """Raises `ModelError` if the module does not map sentence vectors to sentence vectors."""
        for key in ("module_input_name", "module_output_name"):
            if raw.get(key) not in (None, "sentence_embedding"):
                raise ModelError(f"{self.file}: {key} is {raw[key]!r}; only 'sentence_embedding' is supported.")


def read_optional(file: Path) -> dict[str, Any]:
    """A JSON file's contents; a file that is missing is empty."""
    return loading.read_json(file) if file.is_file() else {}


class Step:
    """One step of a head. Subclasses are frozen dataclasses made by the decorator `step`."""

    kinds: ClassVar[tuple[str, ...]] = ()  # modules of sentence-transformers that `from_folder` reads
    dtype: ClassVar[type[np.generic]] = np.float32  # of what the step gives
    instead: ClassVar[str] = ""  # advice at the end of messages of what cannot be written

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError

    @property
    def segmented(self) -> bool:
        """Whether it takes rows that hold several sentences, see `States.segments`."""
        return False

    def check(self, config: EncoderConfig) -> None:
        """Raises `InputError` or `ModelError` if a model of this configuration cannot have the step."""

    def output_width(self, width: int) -> int:
        """Width of the vectors after the step; `MismatchError` if it does not take vectors of this width."""
        return width

    def to_folder(self, target: Target) -> list[Module]:
        """The modules that do the same in sentence-transformers; `InputError` if there are none."""
        raise InputError(f"{self.words()}: modules of sentence-transformers cannot do this{self.instead}.")

    def save_beside(self, folder: Path) -> None:
        """Writes what the modules cannot say into a file at the top of a model folder, if there is anything."""

    @classmethod
    def from_folder(cls, found: Found) -> Step | None:
        """The step a module stands for; None for a module that does nothing or belongs to another class."""
        return None

    def to_onnx(self, graph: Any, x: Any) -> Any:
        """Adds the step's operators to a graph (`jaxwhiten.models.graph`), and gives the name of the result."""
        raise InputError(f"{self.words()}: cannot be exported to ONNX{self.instead}.")

    def words(self) -> str:
        """What the step does, in a few words that differ for steps that differ in more than parameters."""
        return type(self).__name__.lower()


class StateStep(Step):
    """A step before the pooling: `States` to `States`, also in ONNX."""


class VectorStep(Step):
    """A step after the pooling: [batch, d] to [batch, k]."""

    segmented = True


def leaves(steps: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays of steps, each with its path as JAX writes it."""
    if isinstance(steps, Step):
        fields = dataclasses.fields(steps)  # type: ignore[arg-type]
        named = {f".{field.name}": field.name for field in fields if field.metadata.get("kind") == "array"}
        for place, name in named.items():
            yield from leaves(getattr(steps, name), path + place)
    elif isinstance(steps, tuple | list | Mapping):
        items = sorted(steps.items()) if isinstance(steps, Mapping) else enumerate(steps)
        for key, value in items:
            yield from leaves(value, f"{path}[{key!r}]")
    elif steps is not None:
        yield path, steps


STEPS: dict[str, list[type[Step]]] = {}
"""Classes by the module of sentence-transformers they read, those that look closest first."""

S = TypeVar("S", bound=type[Step])


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, array, record))
def step(cls: S) -> S:
    """Makes a class a step: a frozen dataclass, a pytree whose leaves are its arrays, and entries of `STEPS`."""
    made = dataclasses.dataclass(frozen=True)(cls)
    names: dict[str | None, list[str]] = {None: [], "array": []}
    for field in dataclasses.fields(made):  # type: ignore[arg-type]
        names.setdefault(field.metadata.get("kind"), []).append(field.name)

    # Not register_dataclass: its tree structures of different classes compare equal, so that a cache keyed by them
    # can hand out another pooling's program.
    def flatten(step: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        arrays = [(jax.tree_util.GetAttrKey(name), getattr(step, name)) for name in names["array"]]
        return arrays, (made, *(getattr(step, name) for name in names[None]))

    def unflatten(static: tuple[Any, ...], arrays: Any) -> Any:
        values = zip((*names[None], *names["array"]), (*static[1:], *arrays), strict=True)
        return made(**dict(values))

    with_jax(lambda: jax.tree_util.register_pytree_with_keys(made, flatten, unflatten))
    for kind in cls.kinds:
        STEPS.setdefault(kind, []).append(made)
    return made  # type: ignore[return-value]
