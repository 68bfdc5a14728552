"""The step that ends a head in bytes: vectors to small codes, inside the compiled program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, UInt8

from jaxwhiten.codes import Code
from jaxwhiten.errors import MismatchError
from jaxwhiten.head.steps import Module, Step, Target, VectorStep, array, record, step
from jaxwhiten.head.vectors import Normalize, Whiten

# What a code is saved as in a model folder. Other libraries read the modules beside it, and so the vectors it codes.
CODE_FILE = "code.safetensors"


@step
class Quantise(VectorStep):
    """Mapped vectors to uint8 codes, so that a byte leaves the device where four or more would. The last of its head.

    Attributes:
      kind: Class of the code.
      constants: What its quantiser works with.
      code: The fitted code that they follow from.
    """

    kind: type[Code]
    constants: Any = array()
    code: Any = record()

    dtype = np.uint8

    @classmethod
    def of(cls, code: Code) -> Quantise:
        """The quantiser of a fitted code, without its linear map."""
        return cls(type(code), {name: np.asarray(value) for name, value in code.constants.items()}, code)

    def __call__(self, x: Float[Array | np.ndarray, "batch d"]) -> UInt8[Array | np.ndarray, "batch bytes"]:
        """Codes in JAX; of a NumPy array in NumPy, on the host."""
        return self.kind.quantise(x, self.constants)

    def output_width(self, width: int) -> int:
        takes = self.code.affine.outputs
        if width != takes:
            raise MismatchError(f"The code takes vectors of {takes} dimensions; the head gives {width}.")
        return int(self.code.nbytes)

    def to_onnx(self, graph: Any, x: str) -> str:
        return graph.op("Cast", self.kind.quantise_onnx(graph, x, self.constants), to=2)  # uint8

    def to_folder(self, target: Target) -> list[Module]:
        return []

    def save_beside(self, folder: Path) -> None:
        self.code.save(folder / CODE_FILE)

    def words(self) -> str:
        return f"{self.code.name} code of {self.code.nbytes} bytes"


def code_steps(code: Code) -> tuple[Step, ...]:
    """The steps that do what a fitted code does with vectors: its linear map, unit length, and its quantiser."""
    steps: list[Step] = []
    if code.affine.matrix is not None:
        steps.append(Whiten(*code.affine.kernel, code.whitening))
    if code.affine.unit_length:
        steps.append(Normalize())
    return (*steps, Quantise.of(code))
