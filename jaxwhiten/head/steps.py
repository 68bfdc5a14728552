"""The steps of a head: one small class for each operation after the hidden states.

A step class defines everything about its operation: the JAX function, requirements on the model, parameters, modules in
a sentence-transformers folder, ONNX operators, and a description for model cards. A new step is a class with the
decorator `step`; no other code has to change. Whatever the class does not define raises an error that says so.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from jaxwhiten.errors import REASON, InputError, turning
from jaxwhiten.models import EncoderConfig
from jaxwhiten.text.settings import check_values, read_object, refuse_unknown
from jaxwhiten.types import AnyArray, Fields, Float, Int, Json, OnnxGraph, RowsLike

# Files at the top of the folder that other libraries ignore: the whitening behind a Dense layer, and the code.
WHITENING_FILE = "whitening.safetensors"
CODE_FILE = "code.safetensors"

_OUR_CLASS = re.compile(r"<class 'jaxwhiten\.[\w.]+'>")

# Arrays of JAX, which is imported by those who run the steps; a folder's steps are read without it.
Vectors = Float[Any, "batch d"]
Mapped = Float[Any, "batch k"]


def array(default: AnyArray = dataclasses.MISSING) -> Any:
    """A field of a step that holds parameters, a leaf of its pytree, not printed with it. Other fields are static.

    >>> array().metadata["kind"]
    'array'
    """
    return dataclasses.field(default=default, metadata={"kind": "array"}, repr=False)


def record(default: Any = None) -> Any:
    """A field of a step that the computation does not use; the compiled function does not see it."""
    return dataclasses.field(default=default, metadata={"kind": "record"}, compare=False)


@dataclasses.dataclass(frozen=True)
class States:
    """The input of the steps before the pooling: hidden states, their mix, and the weight of each token.

    In an ONNX graph, names of values replace arrays. If rows hold several sentences, `segments` assigns tokens to
    sentences, `*batch` is rows and sentences, `*rows` is rows and 1, and hidden states are [rows, length, d]; only
    `segmented` steps receive such states.

    >>> mask = np.ones((1, 3), int)
    >>> States(None, mask, mask).positions.tolist()
    [0, 1, 2]
    """

    output: AnyArray  # `EncoderOutput`, or `EncoderGraph` in a graph
    mask: AnyArray  # int [*batch, length], 1 for tokens, 0 for padding
    weights: AnyArray  # float32 [*batch, length], the weight of each token: the mask, unless a step changes it
    ids: AnyArray = None  # int [*rows, length], or None if they are not available
    mix: tuple[tuple[int, Any], ...] = ((-1, 1.0),)  # numbers of hidden states and their shares, which sum to 1
    start: AnyArray = 0  # position of the first token to pool, after a prompt that is not pooled
    segments: AnyArray = None  # `jaxwhiten.models.positions.Segments`

    @property
    def np(self) -> Any:
        """The module of functions on the arrays, `jax.numpy`."""
        return self.mask.__array_namespace__()

    @property
    def positions(self) -> Int[AnyArray, "*rows length"]:
        """Position of each token in its sentence."""
        if self.segments is None:
            return self.np.arange(self.mask.shape[-1])
        return self.segments.position[:, None]

    def place(self, position: AnyArray) -> Int[AnyArray, "*batch"]:
        """Index in the row of each sentence's token at a position."""
        if self.segments is None:
            return self.np.broadcast_to(position, self.mask.shape[:-1])
        return self.np.minimum(self.segments.first + position, self.mask.shape[-1] - 1)

    def mixed(self, graph: OnnxGraph) -> str:
        """Name of the mixed hidden state in a graph."""
        hidden = self.output.hidden_states
        parts = [graph.op("Mul", hidden[layer], graph.number(float(share))) for layer, share in self.mix]
        if len(parts) == 1:
            return parts[0]
        return str(graph.op("Sum", *parts))


@dataclasses.dataclass(frozen=True)
class StepModule:
    """One module of a sentence-transformers folder: a class of `sentence_transformers.models` and its files.

    >>> StepModule("Normalize").tensors
    {}
    """

    kind: str
    config: Fields | None = None
    tensors: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    # Entries that the module needs in the `config.json` of the Transformer.
    transformer: Fields = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Target:
    """The context in which a step is written to a folder: the encoder, and the width of vectors before the step.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> Normalize().to_folder(Target(encoder.view.core.config, encoder.dimension))[0].kind
    'Normalize'
    """

    config: EncoderConfig
    width: int


_NAMES = {"module_input_name": ("sentence_embedding",), "module_output_name": ("sentence_embedding",)}


@dataclasses.dataclass(frozen=True)
class Found:
    """A module of a sentence-transformers folder, with its context."""

    folder: Path  # folder of this module
    model: Path  # folder of the whole model
    transformer: Path  # folder of the first module
    config: EncoderConfig
    width: int  # width of the vectors before the module

    @property
    def file(self) -> Path:
        return self.folder / "config.json"

    def read(self, *understood: str, optional: bool = False) -> Json:
        """The configuration; `ModelError` if a key is not understood, or maps something else than sentence vectors."""
        raw = read_object(self.file, optional=optional)
        check_values(self.file, raw, _NAMES)
        refuse_unknown(self.file, raw, {*understood, *_NAMES})
        return raw


class Step:
    """One step of a head. Subclasses are frozen dataclasses made by the decorator `step`.

    >>> Step().output_width(384)
    384
    """

    kinds: ClassVar[tuple[str, ...]] = ()  # modules of sentence-transformers that `from_folder` reads
    dtype: ClassVar[type[np.generic]] = np.float32  # of the step's result
    instead: ClassVar[str] = ""  # advice at the end of error messages of `to_folder` and `to_onnx`

    def __call__(self, x: RowsLike) -> AnyArray:
        raise NotImplementedError

    @property
    def segmented(self) -> bool:
        """Whether the step takes rows that hold several sentences, see `States.segments`."""
        return False

    def check(self, config: EncoderConfig) -> None:
        """Raises `InputError` or `ModelError` if the step cannot follow a model of this configuration."""

    def output_width(self, width: int) -> int:
        """The width of the vectors after the step; `MismatchError` if the step takes another input width."""
        return width

    def to_folder(self, target: Target) -> list[StepModule]:
        """The equivalent modules of sentence-transformers; `InputError` if there are none."""
        raise InputError(f"{self.words()}: modules of sentence-transformers cannot do this{self.instead}.")

    def save_beside(self, folder: Path) -> None:
        """Writes data that modules cannot hold to a file at the top of a model folder; by default nothing."""

    @classmethod
    def from_folder(cls, found: Found) -> Step | None:
        """The step for a module; None if the module does nothing or another class reads it."""
        return None

    def to_onnx(self, graph: OnnxGraph, x: RowsLike) -> Any:
        """Adds the step's operators to a graph (`jaxwhiten.models.graph`) and returns the name of the result."""
        raise InputError(f"{self.words()}: cannot be exported to ONNX{self.instead}.")

    def words(self) -> str:
        """A short description of the step, which differs between steps unless they differ only in parameters."""
        static: dict[str, Any]
        static = _fields(self, None) if dataclasses.is_dataclass(self) else {}
        values = [f"{name} {lasting(value) or type(value).__name__}" for name, value in static.items()]
        return " ".join([type(self).__name__.lower(), *values])


class StateStep(Step):
    """A step before the pooling: it maps `States` to `States`, also in ONNX.

    >>> issubclass(LayerMix, StateStep)
    True
    """


class VectorStep(Step):
    """A step after the pooling: it maps [batch, d] to [batch, k].

    >>> isinstance(Normalize(), VectorStep)
    True
    """

    segmented = True


def leaves(steps: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays of steps, each with its path as JAX writes it.

    >>> [path for path, _ in leaves(AfterPrompt(Mean(), np.int32(3)))]
    ['.length']
    """
    if isinstance(steps, Step):
        for name, value in _fields(steps, "array").items():
            yield from leaves(value, f"{path}.{name}")
    elif isinstance(steps, tuple | list | Mapping):
        items = sorted(steps.items()) if isinstance(steps, Mapping) else enumerate(steps)
        for key, value in items:
            yield from leaves(value, f"{path}[{key!r}]")
    elif steps is not None:
        yield path, steps


def _fields(step: Any, kind: str | None) -> dict[str, Any]:
    """The values of a step's fields of a kind: `"array"`, `"record"`, or None for static ones."""
    fields = (field.name for field in dataclasses.fields(step) if field.metadata.get("kind") == kind)
    return {name: getattr(step, name) for name in fields}


def facts(steps: Any) -> Any:
    """What of steps decides a compiled program, by value: classes, static fields, and dtypes and shapes of arrays.

    Records are left out, so that steps that were placed on a device, which have none, are described like the originals.

    >>> facts(Truncate(64))
    (<class 'jaxwhiten.head.vectors.Truncate'>, ('k', 64))

    Raises:
      InputError: The value of a static field cannot be hashed, and so not be compared.
    """
    if isinstance(steps, Step):
        static = _fields(steps, None)
        for name, value in static.items():
            where = f"{type(steps).__name__}.{name}"
            with turning(InputError, f"{where}: {REASON}: use a tuple, or array() for the field.", TypeError):
                hash(value)
        arrays = {name: facts(value) for name, value in _fields(steps, "array").items()}
        return type(steps), *static.items(), *arrays.items()
    if isinstance(steps, Mapping):
        return tuple((key, facts(value)) for key, value in sorted(steps.items()))
    if isinstance(steps, tuple | list):
        return tuple(map(facts, steps))
    if steps is None:
        return None
    return (str(getattr(steps, "dtype", None) or np.result_type(steps)), np.shape(steps))


def lasting(values: AnyArray) -> str | None:
    """Facts as text that means the same in every process, or None if there is none.

    There is none for a class outside this package, whose code may change between processes, and for objects whose text
    is not their value.

    >>> lasting(facts(Truncate(64)))
    "(<class 'jaxwhiten.head.vectors.Truncate'>, ('k', 64))"
    """
    text = repr(values)
    return None if "<" in _OUR_CLASS.sub("", text) else text


STEPS: dict[str, list[type[Step]]] = {}
"""Step classes by the sentence-transformers module that they read, the most specific first."""

S = TypeVar("S", bound=type[Step])


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, array, record))
def step(cls: S) -> S:
    """Makes a class a step: a frozen dataclass, a pytree whose leaves are its arrays, and registered in `STEPS`.

    >>> @step
    ... class Scale(VectorStep):
    ...     factor: float
    ...
    ...     def __call__(self, x):
    ...         return x * self.factor
    >>> Scale(2.0)(np.ones((1, 2))).tolist()
    [[2.0, 2.0]]
    """
    made = dataclasses.dataclass(frozen=True)(cls)
    _unregistered.append(made)
    if "jax" in sys.modules:
        as_pytrees()
    for kind in cls.kinds:
        STEPS.setdefault(kind, []).append(made)
    return made  # type: ignore[return-value]


_unregistered: list[type[Any]] = []


def as_pytrees() -> None:
    """Makes all steps pytrees of JAX; called by those who pass steps to compiled functions.

    >>> as_pytrees()
    >>> len(jax.tree.leaves(AfterPrompt(Mean(), np.int32(3))))
    1
    """
    import jax

    # `register_dataclass` is not used: it makes tree structures of different classes compare equal, so that a cache
    # with these keys could return the program of another pooling.
    def flatten(step: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        arrays = _fields(step, "array")
        keyed = [(jax.tree_util.GetAttrKey(name), value) for name, value in arrays.items()]
        return keyed, (type(step), tuple(arrays), *_fields(step, None).items())

    def unflatten(fixed: tuple[Any, ...], leaves: Any) -> Any:
        made, names, *static = fixed
        return made(**dict(static), **dict(zip(names, leaves, strict=True)))

    while _unregistered:
        jax.tree_util.register_pytree_with_keys(_unregistered.pop(), flatten, unflatten)
