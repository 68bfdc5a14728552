"""The step that ends a head in bytes: vectors to small codes, inside the compiled program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float32, UInt8

from jaxwhiten import codes
from jaxwhiten.errors import FormatError, MismatchError, ModelError
from jaxwhiten.head.steps import Module, Step, Target, Vectors, VectorStep, array, record, step
from jaxwhiten.head.vectors import Dense, Normalize, Whiten

# What a code is saved as in a model folder. Other libraries read the modules beside it, and so the vectors it codes.
CODE_FILE = "code.safetensors"


@step
class Code(VectorStep):
    """Mapped vectors to uint8 codes, so that a byte leaves the device where four or more would. The last of its head.

    Attributes:
      kind: Name of the code in `jaxwhiten.codes.CODES`.
      takes: Width of the vectors.
      size: Bytes of a code.
      constants: What its quantiser works with.
      code: What they follow from.
    """

    kind: str
    takes: int
    size: int
    constants: Any = array()
    code: Any = record()

    dtype = np.uint8

    @classmethod
    def of(cls, code: codes.Code) -> Code:
        """The quantiser of a fitted code, without its linear map."""
        constants = {name: np.asarray(value) for name, value in code.constants.items()}
        return cls(code.name, len(code.byte_of_column), code.nbytes, constants, code)

    @classmethod
    def read(cls, file: Path, width: int) -> Code:
        """The step of a code's file in a model folder.

        Raises:
          ModelError: Damaged, or of vectors of another width.
        """
        try:
            result = cls.of(codes.load_code(file))
            result.output_width(width)
        except (FormatError, MismatchError) as error:
            raise ModelError(f"{file}: {error}") from error
        return result

    def __call__(self, x: Vectors) -> UInt8[Array, "batch bytes"]:
        return codes.CODES[self.kind].quantise(x, self.constants)

    def on_host(self, x: Float32[np.ndarray, "batch d"]) -> UInt8[np.ndarray, "batch bytes"]:
        """The same in NumPy."""
        return codes.CODES[self.kind].quantise(x, self.constants)

    def output_width(self, width: int) -> int:
        if width != self.takes:
            raise MismatchError(f"The code takes vectors of {self.takes} dimensions; the head gives {width}.")
        return self.size

    def to_onnx(self, graph: Any, x: str) -> str:
        constants = {name: np.asarray(value) for name, value in self.constants.items()}
        whole = codes.CODES[self.kind].quantise_onnx(graph, x, constants)
        return graph.op("Cast", whole, to=2)  # uint8

    def to_folder(self, target: Target) -> list[Module]:
        return []

    def save_beside(self, folder: Path) -> None:
        if self.code is not None:
            self.code.save(folder / CODE_FILE)

    def words(self) -> str:
        return f"{self.kind} code of {self.size} bytes"


def code_steps(code: codes.Code) -> tuple[Step, ...]:
    """The steps that do what a fitted code does with vectors: its linear map, unit length, and its quantiser."""
    found: list[Step] = []
    if isinstance(code, codes.SpectrumCode):
        found.append(Whiten.of(code.whitening))
    elif code.affine.matrix is not None:
        weight, bias = code.kernel
        found.append(Dense(np.ascontiguousarray(weight.T), bias, None, "Identity"))
    if code.affine.unit_length:
        found.append(Normalize())
    return (*found, Code.of(code))
