"""Engines that run an encoder: JAX, or OpenVINO on CPUs. Each engine is one file."""

from typing import TYPE_CHECKING

from jaxwhiten._lazy import exports

if TYPE_CHECKING:
    from jaxwhiten.engines.batching import Batch, BatchResult, Layout, length_ladder
    from jaxwhiten.engines.engine import Engine, chosen, engine_class, engine_for, recorded
    from jaxwhiten.engines.forward import mean_matrix

__getattr__, __dir__ = exports(__name__)

FASTEST = "auto"
DEFAULT = "jax"
OPENVINO = "openvino"
ENGINES = {DEFAULT: "forward.JAXEngine", OPENVINO: "openvino.OpenVINOEngine"}
"""Engines by name: the file and the class, which is imported when first used."""

__all__ = ["DEFAULT", "ENGINES", "FASTEST", "OPENVINO"]
__all__ += ["Batch", "BatchResult", "Engine", "Layout", "chosen", "engine_class", "engine_for", "length_ladder"]
__all__ += ["mean_matrix", "recorded"]
