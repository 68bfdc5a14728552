"""What runs the compiled forward: JAX, or OpenVINO, which has bfloat16 and int8 products for CPUs.

An engine is a `Forward`; nothing else of an encoder differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax

from jaxwhiten.encoding.forward import Forward
from jaxwhiten.errors import InputError, spelled, unknown_name
from jaxwhiten.models import TransformerEncoder

JAX, OPENVINO = "jax", "openvino"
ENGINES = (JAX, OPENVINO)


class Engine(NamedTuple):
    """An engine and its precision, checked.

    Attributes:
      name: One of `ENGINES`.
      dtype: What matrix products run in: `"float32"`, `"bfloat16"`, or with OpenVINO `"int8"`.
      folder: The model's, where int8 weights lie.
    """

    name: str
    dtype: str
    folder: Path | None = None

    @classmethod
    def named(cls, name: str, dtype: str | None = None, folder: Path | None = None) -> Engine:
        """The engine of a name.

        Args:
          name: One of `ENGINES`.
          dtype: None for the engine's default: float32 with JAX; with OpenVINO bfloat16 where the CPU multiplies it
            natively, else float32.
          folder: The model's.

        Raises:
          InputError: No such engine, or no such dtype with it on this machine.
          MissingDependencyError: OpenVINO is not installed.
        """
        if name not in ENGINES:
            raise unknown_name("engine", name, ENGINES)
        if name == OPENVINO:
            from jaxwhiten.encoding import openvino

            return cls(name, openvino.checked_dtype(dtype), folder)
        return cls(name, dtype or "float32", folder)

    @property
    def loaded_dtype(self) -> str:
        """What the Flax module is loaded for."""
        return self.dtype if self.name == JAX else "float32"

    def forward(self, model: TransformerEncoder, max_length: int, device: str | jax.Device | None) -> Forward:
        """The compiled function of an encoder, see `Forward`; InputError for a static one in another engine."""
        if self.name == JAX:
            return Forward(model, max_length, device)
        if model.config.static:
            raise InputError(f"A static encoder has no products for an engine to run: take {spelled('engine', JAX)}.")
        from jaxwhiten.encoding.openvino import OpenVINOForward

        return OpenVINOForward(model, max_length, device, self.dtype, self.folder)
