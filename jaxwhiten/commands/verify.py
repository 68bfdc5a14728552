"""`jaxwhiten verify`: checks this installation, or that models and indexes give what their files specify."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxwhiten import terminal
from jaxwhiten._version import __version__
from jaxwhiten.commands.arguments import Report, Source
from jaxwhiten.commands.texts import sentences
from jaxwhiten.errors import (
    InputError,
    JaxwhitenError,
    MismatchError,
    MissingDependencyError,
    install_command,
    optional,
)
from jaxwhiten.terminal import counted

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder

_MARKS = {True: "ok  ", None: "--  ", False: "FAIL"}
_REQUIRED = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers", "safetensors")
_OPTIONAL = ("openvino", "pyarrow", "optax", "orbax-checkpoint", "grain", "onnx", "sentence-transformers")
_TEXTS = (
    "A man plays a guitar.",
    "A Naïve CAFÉ in 北京: 1,984 of them – “quoted”.",
    "short",
    "The committee rejected the plan on Tuesday, and meets again when the engineers have told it what went wrong. " * 8,
)
_SHIPPED = "jaxwhiten-tiny"
_COSINE = 0.59976  # of the first and the third text, by the shipped model
_ALLOWED = 1e-4  # difference of the cosine


class Check(NamedTuple):
    """The result of a check; `ok` is None if it could not be done."""

    name: str
    ok: bool | None
    detail: str


def verify(*path: Source, texts: Source | None = None, clear_cache: bool = False) -> Iterator[Report]:
    """Check this installation, or models and indexes.

    The whole file of an index is read.

    Args:
      path: model folder or Hugging Face model ID, or index; default: check this installation
      texts: your own texts to compare models with sentence-transformers on, in a format that encode reads
      clear_cache: empty the cache of compiled models and vectors first

    Examples:
      jaxwhiten verify
      jaxwhiten verify small/ docs.db
    """
    from jaxwhiten.text import uncounted

    if texts and not path:
        raise InputError("--texts requires a model: name its folder.")
    if clear_cache:
        from jaxwhiten.io import trim_cache

        trim_cache(0)
    compared = [*_TEXTS, *(sentences(texts) if texts else ())]
    checks = list[Check]()
    with terminal.watched(), uncounted():  # its texts are of every length
        for check in _paths(path, compared) if path else _installation():
            checks.append(check)
            yield Report(f"{_MARKS[check.ok]} {check.name:<20} {' '.join(check.detail.split())}")
    failed = [check for check in checks if check.ok is False]
    yield Report("", {"ok": not failed, "checks": [check._asdict() for check in checks]})
    if failed:
        raise JaxwhitenError(
            f"{len(failed)} of {len(checks)} checks failed: {', '.join(check.name for check in failed)}."
        )


def _check(name: str, check: Callable[..., str], *args: Any) -> Check:
    """Runs a check; an exception is its result."""
    terminal.begin(f"checking {name}")
    try:
        return Check(name, True, check(*args))
    except MissingDependencyError as error:
        return Check(name, None, str(error))
    except Exception as error:  # whatever fails is the result
        kind = "" if isinstance(error, JaxwhitenError) else f"{type(error).__name__}: "
        return Check(name, False, f"{kind}{error}")


def _installation() -> Iterator[Check]:
    yield Check("jaxwhiten", True, f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    parts = {"packages": _packages, "devices": _devices, "faiss": _faiss, "vectors": _shipped, "cache folder": _cache}
    for name, check in parts.items():
        yield _check(name, check)


def _packages() -> str:
    from importlib import metadata

    versions = {}
    for package in (*_REQUIRED, *_OPTIONAL):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            if package in _REQUIRED:
                raise InputError(f"{package}: not installed: {install_command('cpu')}") from None
    return ", ".join(map(" ".join, versions.items()))


def _devices() -> str:
    import jax

    from jaxwhiten.runtime.hardware import cores

    devices = jax.local_devices()
    kinds = sorted({f"{device.platform} ({device.device_kind})" for device in devices})
    return f"{len(devices)} of {', '.join(kinds)}; {jax.process_count()} process, {cores()} CPU cores"


def _faiss() -> str:
    faiss = optional("faiss", "cpu", "Search", "faiss-cpu")

    return f"{faiss.__version__}, {faiss.get_compile_options().strip()}"


def _shipped() -> str:
    from jaxwhiten.encoding import Encoder

    encoder = Encoder.from_pretrained(_SHIPPED, pooling="mean")
    cosine = encoder.similarity(*encoder.encode([_TEXTS[0], _TEXTS[2]])).item()
    if not abs(cosine - _COSINE) <= _ALLOWED:  # also NaN
        raise MismatchError(
            f"{_SHIPPED}: a cosine of {cosine:.5f} by {encoder.view.core.engine.name}; expected {_COSINE:.5f}."
        )
    return f"{_SHIPPED}, by {encoder.view.core.engine.name}: as expected"


def _cache() -> str:
    from jaxwhiten.io import cache_dir, cache_limit, trim_cache, writing

    folder = cache_dir()
    with writing(folder, OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (probe := folder / ".verify").touch()
        probe.unlink()
    return f"{folder}: {trim_cache() / 1e9:.2f} GB of at most {cache_limit() / 1e9:g} GB"


def _paths(paths: Sequence[str], texts: list[str]) -> Iterator[Check]:
    from jaxwhiten.export.sentence_transformers import check_codes, check_vectors
    from jaxwhiten.search.header import is_index

    for name in paths:
        if is_index(name):
            yield _check(name, _index, name)
            continue
        encoders: list[Encoder] = []
        yield _check(name, _model, name, encoders)
        for encoder in encoders:
            prefix = f"{name}: " if len(paths) > 1 else ""
            yield _check(f"{prefix}vectors", check_vectors, encoder, name, texts)
            if encoder.view.head.code is not None:
                yield _check(f"{prefix}codes", check_codes, encoder, texts)


def _index(path: str) -> str:
    from jaxwhiten.search import load_index

    index = load_index(path, read_only=True)
    whole = index.database.check()
    return f"{index.backend} index of {counted(index.size, 'vectors')}, {index.dimension} dimensions; {whole}"


def _model(name: str, encoders: list[Encoder]) -> str:
    """Loads a model, and appends it to `encoders`."""
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.head import own_pooling
    from jaxwhiten.models.folders import resolve_folder

    encoder = Encoder.from_pretrained(name, pooling=own_pooling(resolve_folder(name)))
    encoders.append(encoder)
    config = encoder.view.core.config
    return (
        f"{config.model_type}, {config.num_layers} layers of {config.hidden_size}, {config.parameters / 1e6:.1f} M"
        f" weights; {encoder.view.head.summary}, {encoder.dimension} dimensions, up to {encoder.max_length} tokens"
    )
