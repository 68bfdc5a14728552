"""Steps after the pooling: whitening and other linear maps, dense layers, unit length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.errors import FormatError, InputError, MismatchError, ModelError
from jaxwhiten.head.steps import (
    Found,
    Mapped,
    Module,
    Step,
    Target,
    Vectors,
    VectorStep,
    array,
    dense_module,
    read_optional,
    record,
    step,
)
from jaxwhiten.models import checkpoint
from jaxwhiten.whitening import Whitening
from jaxwhiten.whitening.affine import linear

# What a whitening is saved as in a model folder, beside the Dense layer that other libraries read.
WHITENING_FILE = "whitening.safetensors"

# Activations of Dense: the function, by the name of the class in torch.nn.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "GELU": lambda x: jax.nn.gelu(x, approximate=False),
    "SiLU": jax.nn.silu,
    "Sigmoid": jax.nn.sigmoid,
}


def _check_width(what: str, takes: int, width: int) -> None:
    if takes != width:
        raise MismatchError(f"The {what} takes vectors of {takes} dimensions; the model gives {width}.")


@step
class Whiten(VectorStep):
    """A fitted whitening: x ↦ x W + b.

    Attributes:
      weight: W, float32 [d, k].
      bias: b, float32 [k].
      whitening: What they follow from.
    """

    weight: Any = array()
    bias: Any = array()
    whitening: Whitening | None = record()

    @classmethod
    def of(cls, whitening: Whitening) -> Whiten:
        """The step of a fitted whitening."""
        return cls(*whitening.kernel, whitening)

    def __call__(self, x: Vectors) -> Mapped:
        return linear(x, self.weight, self.bias)

    def output_width(self, width: int) -> int:
        _check_width("whitening", self.weight.shape[0], width)
        return self.weight.shape[1]

    def to_folder(self, target: Target) -> list[Module]:
        return [dense_module(np.asarray(self.weight), np.asarray(self.bias))]

    def save_beside(self, folder: Path) -> None:
        if self.whitening is not None:
            self.whitening.save(folder / WHITENING_FILE)

    def to_onnx(self, graph: Any, x: str) -> str:
        x = graph.op("MatMul", x, graph.constant(f"{x}.weight", np.asarray(self.weight)))
        return graph.op("Add", x, graph.constant(f"{x}.bias", np.asarray(self.bias)))

    def to_torch(self, folder: str) -> str:
        return (
            f'dense = load_file("FOLDER/{folder}/model.safetensors")\n'
            'pooled = pooled @ dense["linear.weight"].T + dense["linear.bias"]'
        )

    def words(self) -> str:
        return f"whitening {self.weight.shape[0]} → {self.weight.shape[1]}"


@step
class Dense(VectorStep):
    """A dense layer with an activation, and a residual where the folder has one.

    Attributes:
      weight: float32 [outputs, inputs], as PyTorch keeps it.
      bias: float32 [outputs], or None.
      residual_weight: float32 [outputs, inputs]. Maps the input of the residual, where it is not added as it is.
      activation: A name of `ACTIVATIONS`.
      residual: Whether the input is added to the result.
    """

    weight: Any = array()
    bias: Any = array(None)
    residual_weight: Any = array(None)
    activation: str = "Tanh"
    residual: bool = False

    kinds = ("Dense",)

    def __call__(self, x: Vectors) -> Mapped:
        y = ACTIVATIONS[self.activation](linear(x, self.weight.T, self.bias))
        if not self.residual:
            return y
        return y + (x if self.residual_weight is None else linear(x, self.residual_weight.T))

    def output_width(self, width: int) -> int:
        _check_width("Dense layer", self.weight.shape[1], width)
        return self.weight.shape[0]

    def to_folder(self, target: Target) -> list[Module]:
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
        return [Module("Dense", config | ({"use_residual": True} if self.residual else {}), tensors)]

    @classmethod
    def from_folder(cls, found: Found) -> Dense | Whiten:
        raw, width, file = found.read(), found.width, found.file
        found.refuse_other_names(raw)
        inputs, outputs = raw.get("in_features"), raw.get("out_features")
        if inputs != width or not isinstance(outputs, int):
            raise ModelError(f"{file}: maps {inputs!r} to {outputs!r} features; what comes before has {width}.")
        activation = str(raw.get("activation_function", "torch.nn.modules.activation.Tanh"))
        package, _, name = activation.rpartition(".")
        if package.split(".")[0] != "torch" or name not in ACTIVATIONS:
            raise ModelError(
                f"{file}: activation {activation!r} is not supported. Supported: {', '.join(ACTIVATIONS)}."
            )
        residual = bool(raw.get("use_residual"))
        shapes: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, width)}
        if raw.get("bias", True):
            shapes["linear.bias"] = (outputs,)
        if residual and outputs != width:
            shapes["residual.weight"] = (outputs, width)
        tensors, where = checkpoint.open_weights(found.folder)
        read = {key: np.asarray(checkpoint.read_tensor(tensors, key, shape, where)) for key, shape in shapes.items()}
        weight, bias, more = (read.get(key) for key in ("linear.weight", "linear.bias", "residual.weight"))
        dense = cls(weight, bias, more, name, residual)
        return dense._as_whitening(found.model / WHITENING_FILE) or dense

    def _as_whitening(self, file: Path) -> Whiten | None:
        """The whitening saved in a file, if this layer is its map."""
        if not file.is_file() or self.activation != "Identity" or self.bias is None or self.residual:
            return None
        try:
            whitening = Whitening.load(file)
        except FormatError as error:
            raise ModelError(str(error)) from error
        weight, bias = np.ascontiguousarray(self.weight.T), self.bias
        own = whitening.kernel
        if own[0].shape != weight.shape or not all(map(np.allclose, own, (weight, bias))):
            return None
        return Whiten(weight, bias, whitening)

    def to_onnx(self, graph: Any, x: str) -> str:
        y = graph.op("MatMul", x, graph.constant(f"{x}.dense", np.asarray(self.weight).T))
        if self.bias is not None:
            y = graph.op("Add", y, graph.constant(f"{x}.bias", np.asarray(self.bias)))
        y = graph.activation(self.activation, y)
        if not self.residual:
            return y
        if self.residual_weight is not None:
            x = graph.op("MatMul", x, graph.constant(f"{x}.residual", np.asarray(self.residual_weight).T))
        return graph.op("Add", y, x)

    def words(self) -> str:
        return f"dense {self.activation}{' + residual' if self.residual else ''}"


@step
class Truncate(VectorStep):
    """The first k columns, as a Matryoshka encoder is used.

    Attributes:
      k: Columns kept.

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

    def to_folder(self, target: Target) -> list[Module]:
        return [dense_module(np.eye(target.width, self.k))]

    def to_onnx(self, graph: Any, x: str) -> str:
        return graph.op("Slice", x, graph.integers(0), graph.integers(self.k), graph.integers(1))

    def to_torch(self, folder: str) -> str:
        return f"pooled = pooled[:, :{self.k}]"

    def words(self) -> str:
        return f"first {self.k} columns"


@step
class Normalize(VectorStep):
    """Rows scaled to unit length."""

    kinds = ("Normalize",)
    torch = "pooled = torch.nn.functional.normalize(pooled)"

    def __call__(self, x: Vectors) -> Mapped:
        return normalize_on_device(x)

    def to_folder(self, target: Target) -> list[Module]:
        return [Module("Normalize")]

    @classmethod
    def from_folder(cls, found: Found) -> Step | None:
        found.refuse_other_names(read_optional(found.file))
        return cls()

    def to_onnx(self, graph: Any, x: str) -> str:
        length = graph.op("ReduceL2", x, axes=[-1], keepdims=1)
        return graph.op("Div", x, graph.op("Max", length, graph.number(1e-12)))
