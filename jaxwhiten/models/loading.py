"""Loading and saving encoders: their weights, read from a folder into a Flax module, and written."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, traverse_util
from jax.typing import DTypeLike

from jaxwhiten.arrays import blocks
from jaxwhiten.errors import check_name
from jaxwhiten.models import checkpoint
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import Names
from jaxwhiten.models.folders import FAMILIES, ModelFolder, resolve_folder
from jaxwhiten.models.transformer import TransformerEncoder
from jaxwhiten.options import DTYPES
from jaxwhiten.runtime.hardware import check_devices
from jaxwhiten.types import Fields

_HASHED = 1 << 20  # numbers that are converted at a time, to be hashed


def load_model(
    model: str | Path, *, dtype: str = "float32", revision: str | None = None, remat: bool = False, narrow: bool = False
) -> tuple[TransformerEncoder, EncoderConfig, Path]:
    """Loads an encoder.

    >>> model, config, folder = load_model("jaxwhiten-tiny")
    >>> config.hidden_size
    256

    Args:
      model: A local folder or a hub id.
      dtype: Dtype of matrix products, `"float32"` or `"bfloat16"`.
      revision: Commit, tag or branch on the hub.
      remat: Whether to recompute activations in the backward pass, for training with less memory.
      narrow: Whether parameters have that dtype, too; otherwise they are float32, as needed for training.

    Returns:
      The model, its configuration, and the folder of its weights.

    Raises:
      ModelError: A file cannot be read; the message names the file or tensor.
    """
    check_devices()
    folder = ModelFolder(resolve_folder(model, revision=revision))
    if (table := folder.static) is not None:
        from jaxwhiten.models import static

        encoder = static.load_static(table, _dtype(dtype))
        return encoder, encoder.config, table
    weights, config = folder.transformer, folder.config
    module, state = abstract(config, dtype, remat)
    kept_dtype = _dtype(dtype if narrow else "float32")
    values = checkpoint.load_parameters(weights, FAMILIES[config.model_type], checkpoint.shapes_of(state), kept_dtype)
    if config.pooler and not any(path[0] == "pooler" for path in values):
        config = dataclasses.replace(config, pooler=False)
        module, state = abstract(config, dtype, remat)
    nnx.replace_by_pure_dict(state, traverse_util.unflatten_dict(values))
    return nnx.merge(module, state), config, weights


def look_at(path: Path) -> tuple[EncoderConfig, dict[str, int]]:
    """A folder's configuration, and its modules outside the encoder as in `checkpoint.match`."""
    folder = ModelFolder(path)
    if folder.static is not None:
        return load_model(path)[1], {}
    shapes = checkpoint.shapes_of(abstract(folder.config, "float32", False)[1])
    return folder.config, checkpoint.match(folder.transformer, FAMILIES[folder.config.model_type], shapes)[3]


def abstract(config: EncoderConfig, dtype: str, remat: bool) -> tuple[nnx.GraphDef[Any], nnx.State[Any, Any]]:
    """The module with shapes only: nothing is allocated before the shapes of the weights are checked."""
    module, state = _traced(config, dtype, remat)
    return module, jax.tree.map(lambda shape: shape, state)  # a copy, which will be filled


@functools.lru_cache(maxsize=16)
def _traced(config: EncoderConfig, dtype: str, remat: bool) -> tuple[nnx.GraphDef[Any], nnx.State[Any, Any]]:
    return nnx.split(nnx.eval_shape(lambda: init_model(config, seed=_OneKey(), dtype=dtype, remat=remat)))


class _OneKey(nnx.Rngs):
    """One key for all parameters: most of the time of tracing a model went into streams of keys."""

    def params(self) -> jax.Array:
        return jax.random.key(0)


def init_model(
    config: EncoderConfig, *, seed: int | nnx.Rngs, dtype: str = "float32", remat: bool = False
) -> TransformerEncoder:
    """An encoder with random weights, for training from scratch and for tests; arguments as in `load_model`.

    >>> model = init_model(load_config(resolve_folder("jaxwhiten-tiny")), seed=0)
    >>> len(model.layers)
    4
    """
    rngs = seed if isinstance(seed, nnx.Rngs) else nnx.Rngs(seed)
    return TransformerEncoder(config, dtype=_dtype(dtype), remat=remat, rngs=rngs)


def _dtype(name: str) -> DTypeLike:
    check_name("dtype", name, DTYPES)
    return getattr(jnp, name)


def save_model(model: TransformerEncoder, folder: str | Path, *, dtype: str = "float32") -> None:
    """Writes `config.json` and `model.safetensors` in the Hugging Face layout, with weights in float32 or float16.

    The folder is new, empty, or made by jaxwhiten, in which case it is replaced as a whole.

    >>> model, _, _ = load_model("jaxwhiten-tiny")
    >>> save_model(model, "copy")
    >>> load_config(Path("copy")).num_layers
    4
    """
    family = FAMILIES[model.config.model_type]
    tensors = checkpoint.to_tensors(family, nnx.state(model, nnx.Param), dtype)
    checkpoint.save_folder(folder, family.config_json(model.config), tensors, dtype)


def contents(config: EncoderConfig, state: nnx.State[Any, Any]) -> Iterator[bytes]:
    """A model's configuration and weights as bytes, to be hashed."""
    yield repr(config).encode()
    for path, leaf in sorted(nnx.to_flat_state(state), key=lambda item: str(item[0])):
        yield repr(path).encode()
        numbers = np.asarray(leaf.get_value()).reshape(-1)
        for part in blocks(len(numbers), _HASHED):
            yield numbers[part].astype(np.float32).tobytes()


def load_head(module: nnx.Module, part: Any, names: Names, config: EncoderConfig, folder: Path) -> None:
    """Reads a family's head from a folder into the part of a module that an nnx filter selects."""
    state = nnx.state(module, part)
    family = FAMILIES[config.model_type].head(names)
    values = checkpoint.load_parameters(folder, family, checkpoint.shapes_of(state))
    nnx.replace_by_pure_dict(state, traverse_util.unflatten_dict(values))
    nnx.update(module, jax.tree.map(jnp.asarray, state))


def save_with_head(
    encoder: TransformerEncoder,
    folder: str | Path,
    task: str,
    head: nnx.State[Any, Any],
    names: Names,
    more: Fields,
    dtype: str,
) -> None:
    """Writes an encoder with a head as transformers' architecture for `task`; `more` are further keys of the config."""
    family = FAMILIES[encoder.config.model_type]
    tensors = checkpoint.to_tensors(family, nnx.state(encoder, nnx.Param), dtype, family.prefixes[1])
    tensors |= checkpoint.to_tensors(family.head(names), head, dtype)
    checkpoint.save_folder(folder, {**family.config_json(encoder.config, task), **more}, tensors, dtype)
