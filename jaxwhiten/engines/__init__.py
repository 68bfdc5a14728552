"""Engines that run an encoder: JAX, or OpenVINO on CPUs, also with int8 products. Each engine is one file."""

from typing import TYPE_CHECKING

from jaxwhiten.lazy import exports

if TYPE_CHECKING:
    from jaxwhiten.engines.batching import Batch, Found, Layout, length_ladder
    from jaxwhiten.engines.engine import Engine, chosen, engine_class, engine_for, recorded
    from jaxwhiten.engines.int8 import save_int8
    from jaxwhiten.engines.quantised import has_int8
    from jaxwhiten.engines.table import mean_matrix

__getattr__, __dir__ = exports(__name__)

# the choice, the reference, and the engine of int8 weights
FASTEST = "auto"
DEFAULT = "jax"
INT8 = "openvino"
ENGINES = {DEFAULT: "forward.JAXEngine", INT8: "openvino.OpenVINOEngine"}
"""Engines by name: the file and the class, which is imported when first used."""
HELP = f"{FASTEST} (the fastest here), {DEFAULT}, or {INT8} on CPUs"
DTYPES_HELP = f"float32 or bfloat16, with {INT8} also int8"

__all__ = ["DEFAULT", "DTYPES_HELP", "ENGINES", "FASTEST", "HELP", "INT8"]
__all__ += ["Batch", "Engine", "Found", "Layout", "chosen", "engine_class", "engine_for", "has_int8", "length_ladder"]
__all__ += ["mean_matrix", "recorded", "save_int8"]
