"""Steps after the pooling: whitening and other linear maps, dense layers, unit length, codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.codes import Code
from jaxwhiten.errors import REASON, FormatError, InputError, ModelError, check_width, turning
from jaxwhiten.head.steps import (
    CODE_FILE,
    WHITENING_FILE,
    Found,
    Mapped,
    Step,
    StepModule,
    Target,
    Vectors,
    VectorStep,
    array,
    record,
    step,
)
from jaxwhiten.models import checkpoint
from jaxwhiten.types import AnyArray, Float, OnnxGraph, UInt8
from jaxwhiten.whitening import Whitening
from jaxwhiten.whitening.affine import linear

# Activations of Dense, by the name of their class in torch.nn.
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_OF_DENSE = ("in_features", "out_features", "bias", "activation_function", "use_residual")


def activated(name: str, x: Float[AnyArray, "*batch d"]) -> Float[AnyArray, "*batch d"]:
    """An activation in `ACTIVATIONS`."""
    import jax

    if name == "Identity":
        return x
    return jax.nn.gelu(x, approximate=False) if name == "GELU" else getattr(jax.nn, name.lower())(x)


def dense_module(weight: Float[np.ndarray, "d k"], bias: Float[np.ndarray, " k"] | None = None) -> StepModule:
    """The map x W + b as a Dense layer, the module of every linear step in a folder; without a bias, b is zero.

    >>> dense_module(np.eye(4, 2, dtype=np.float32)).kind
    'Dense'
    """
    offset = np.zeros(weight.shape[1]) if bias is None else bias
    return Dense(weight.T.astype(np.float32), offset.astype(np.float32), None, "Identity").module()


def _onnx_linear(graph: OnnxGraph, x: str, part: str, weight: AnyArray, bias: AnyArray) -> str:
    """`linear` in a graph; names of constants are made from x and `part`."""
    y = graph.op("MatMul", x, graph.constant(f"{x}.{part}weight", np.asarray(weight, np.float32)))
    if bias is None:
        return str(y)
    return str(graph.op("Add", y, graph.constant(f"{x}.{part}bias", np.asarray(bias, np.float32))))


@step
class Whiten(VectorStep):
    """A fitted whitening: x ↦ x W + b, where W is float32 [d, k] and b float32 [k].

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> Whiten.of(Whitening().fit(rows)).weight.shape
    (8, 8)
    """

    weight: AnyArray = array()
    bias: AnyArray = array()
    whitening: Whitening | None = record()

    @classmethod
    def of(cls, whitening: Whitening) -> Whiten:
        return cls(*whitening.kernel, whitening)

    def __call__(self, x: Vectors) -> Mapped:
        return linear(x, self.weight, self.bias)

    def output_width(self, width: int) -> int:
        check_width("whitening", self.weight.shape[0], width, "the model")
        return self.weight.shape[1]

    def to_folder(self, target: Target) -> list[StepModule]:
        return [dense_module(np.asarray(self.weight), np.asarray(self.bias))]

    def save_beside(self, folder: Path) -> None:
        if self.whitening is not None:
            self.whitening.save(folder / WHITENING_FILE)

    def to_onnx(self, graph: OnnxGraph, x: str) -> str:
        return _onnx_linear(graph, x, "", self.weight, self.bias)

    def words(self) -> str:
        return f"whitening {self.weight.shape[0]} → {self.weight.shape[1]}"


@step
class Dense(VectorStep):
    """A dense layer with an activation named in `ACTIVATIONS`, and optionally a residual.

    Weights are float32 [outputs, inputs], as in PyTorch. `residual_weight` maps the residual's input; None adds the
    input unchanged.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> layer = Dense(np.eye(64, 256, dtype=np.float32), np.zeros(64, np.float32), activation="Identity")
    >>> encoder.view.then(layer).width
    64
    """

    weight: AnyArray = array()
    bias: AnyArray = array(None)
    residual_weight: AnyArray = array(None)
    activation: str = "Tanh"
    residual: bool = False

    kinds = ("Dense",)

    def __call__(self, x: Vectors) -> Mapped:
        y = activated(self.activation, linear(x, self.weight.T, self.bias))
        if not self.residual:
            return y
        return y + (x if self.residual_weight is None else linear(x, self.residual_weight.T))

    def output_width(self, width: int) -> int:
        check_width("Dense layer", self.weight.shape[1], width, "the model")
        return self.weight.shape[0]

    def to_folder(self, target: Target) -> list[StepModule]:
        return [self.module()]

    def module(self) -> StepModule:
        outputs, inputs = self.weight.shape
        package = "linear" if self.activation == "Identity" else "activation"
        config = {
            "in_features": inputs,
            "out_features": outputs,
            "bias": self.bias is not None,
            "activation_function": f"torch.nn.modules.{package}.{self.activation}",
        }
        parts = {"linear.weight": self.weight, "linear.bias": self.bias, "residual.weight": self.residual_weight}
        tensors = {name: np.asarray(value) for name, value in parts.items() if value is not None}
        return StepModule("Dense", config | ({"use_residual": True} if self.residual else {}), tensors)

    @classmethod
    def from_folder(cls, found: Found) -> VectorStep:
        raw = found.read(*_OF_DENSE)
        width, outputs = found.width, raw.get("out_features")
        if raw.get("in_features") != width or not isinstance(outputs, int):
            got = f"maps {raw.get('in_features')!r} to {outputs!r} features"
            raise ModelError(f"{found.file}: {got}; what comes before has {width}.")
        activation = str(raw.get("activation_function", "torch.nn.modules.activation.Tanh"))
        name = activation.rpartition(".")[2]
        if not activation.startswith("torch.") or name not in ACTIVATIONS:
            supported = ", ".join(ACTIVATIONS)
            raise ModelError(f"{found.file}: activation {activation!r} is not supported. Supported: {supported}.")
        residual = bool(raw.get("use_residual"))
        tensors, where = checkpoint.open_weights(found.folder)

        def read(key: str, shape: tuple[int, ...], there: bool = True) -> np.ndarray | None:
            return checkpoint.read_tensor(tensors, key, shape, where) if there else None

        dense = cls(
            read("linear.weight", (outputs, width)),
            read("linear.bias", (outputs,), bool(raw.get("bias", True))),
            read("residual.weight", (outputs, width), residual and outputs != width),
            name,
            residual,
        )
        return dense._whitening(found.model / WHITENING_FILE) or dense._truncation() or dense

    def _whitening(self, file: Path) -> Whiten | None:
        """The whitening saved in a file, if this layer is its map; otherwise None."""
        if self.activation != "Identity" or self.bias is None or self.residual or not file.is_file():
            return None
        with turning(ModelError, REASON, FormatError):
            whitening = Whitening.load(file)
        ours = np.ascontiguousarray(self.weight.T), self.bias
        same = all(a.shape == b.shape and np.allclose(a, b) for a, b in zip(whitening.kernel, ours, strict=True))
        return Whiten(*ours, whitening) if same else None

    def _truncation(self) -> Truncate | None:
        """The truncation that this layer is, as `Truncate` writes it; otherwise None."""
        outputs, inputs = self.weight.shape
        if self.activation != "Identity" or self.residual or outputs > inputs or np.any(self.bias):
            return None
        return Truncate(outputs) if np.array_equal(self.weight, np.eye(outputs, inputs)) else None

    def to_onnx(self, graph: OnnxGraph, x: str) -> str:
        y = graph.activation(self.activation, _onnx_linear(graph, x, "", self.weight.T, self.bias))
        if not self.residual:
            return y
        if self.residual_weight is not None:
            x = _onnx_linear(graph, x, "residual.", self.residual_weight.T, None)
        return graph.op("Add", y, x)

    def words(self) -> str:
        return f"dense {self.activation}{' + residual' if self.residual else ''}"


@step
class Truncate(VectorStep):
    """Keeps the first k columns, as for a Matryoshka encoder.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> encoder.view.then(Truncate(64)).width
    64

    References:
      Kusupati et al. 2022, "Matryoshka Representation Learning", section 3.
    """

    k: int

    def __call__(self, x: Vectors) -> Mapped:
        return x[:, : self.k]

    def output_width(self, width: int) -> int:
        if not 1 <= self.k <= width:
            raise InputError(f"Cannot keep {self.k} columns of vectors with {width}.")
        return self.k

    def to_folder(self, target: Target) -> list[StepModule]:
        return [dense_module(np.eye(target.width, self.k))]

    def to_onnx(self, graph: OnnxGraph, x: str) -> str:
        return graph.op("Slice", x, graph.integers(0), graph.integers(self.k), graph.integers(1))

    def words(self) -> str:
        return f"first {self.k} columns"


@step
class Normalize(VectorStep):
    """Scales rows to unit length.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> bool(np.isclose(np.linalg.norm(encoder.view.then(Normalize())(["A dog runs."])), 1))
    True
    """

    kinds = ("Normalize",)

    def __call__(self, x: Vectors) -> Mapped:
        return normalize_on_device(x)

    def to_folder(self, target: Target) -> list[StepModule]:
        return [StepModule("Normalize")]

    @classmethod
    def from_folder(cls, found: Found) -> Step | None:
        found.read(optional=True)
        return cls()

    def to_onnx(self, graph: OnnxGraph, x: str) -> str:
        tiny = graph.number(float(np.finfo(np.float32).tiny))  # where all are zero; NaN stays in the numerator
        largest = graph.op("ReduceMax", graph.op("Abs", x), axes=[-1], keepdims=1)
        scaled = graph.op("Div", x, graph.op("Max", largest, tiny))
        return graph.op("Div", scaled, graph.op("Max", graph.op("ReduceL2", scaled, axes=[-1], keepdims=1), tiny))


@step
class Quantize(VectorStep):
    """Rotates vectors and quantizes them to uint8 codes on the device, so that fewer bytes are fetched. It ends a head.

    `constants` are the inputs of `kind.quantize`, and `rotation` is shift, matrix and offset of the map before it, if
    there is one; they follow from the fitted code.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> Quantize.of(SpectrumCode(bytes=2).fit(rows)).output_width(8)
    2
    """

    kind: type[Code]
    constants: AnyArray = array()
    rotation: AnyArray = array(None)
    code: Any = record()

    dtype = np.uint8

    @classmethod
    def of(cls, code: Code) -> Quantize:
        """The step of a fitted code."""
        plan = code.plan
        constants = {name: np.asarray(value) for name, value in plan.constants.items()}
        rotation = None if plan.affine.matrix is None else plan.affine.parts
        return cls(type(code), constants, rotation, code)

    def __call__(self, x: Float[AnyArray, "batch d"]) -> UInt8[AnyArray, "batch bytes"]:
        """Codes computed in JAX, or in NumPy on the host for a NumPy array."""
        if self.rotation is not None:
            shift, matrix, offset = self.rotation
            x = linear(x - shift, matrix, offset)
        return self.kind.quantize(x, self.constants)

    def output_width(self, width: int) -> int:
        check_width("code", self.code.n_features_in_, width, "the head")
        return int(self.code.nbytes)

    def to_onnx(self, graph: OnnxGraph, x: str) -> str:
        if self.rotation is not None:
            shift, matrix, offset = (graph.constant(f"{x}.rotation{i}", part) for i, part in enumerate(self.rotation))
            x = graph.op("Add", graph.op("MatMul", graph.op("Sub", x, shift), matrix), offset)
        return graph.op("Cast", self.kind.quantize_onnx(graph, x, self.constants), to=2)  # uint8

    def to_folder(self, target: Target) -> list[StepModule]:
        return []

    def save_beside(self, folder: Path) -> None:
        self.code.save(folder / CODE_FILE)

    def words(self) -> str:
        return f"{self.code.name} code of {self.code.nbytes} bytes"
