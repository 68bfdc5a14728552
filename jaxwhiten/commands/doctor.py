"""`jaxwhiten doctor [PATH...]`: checks this machine, and whether folders and files are intact."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxwhiten._version import __version__
from jaxwhiten.commands.arguments import add
from jaxwhiten.errors import DataError, DataNotFoundError, JaxwhitenError, ModelError, install_command
from jaxwhiten.runtime.hardware import cores

_REQUIRED = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers", "safetensors")
_OPTIONAL = {
    "data": ("pyarrow", "tensorflow-datasets"),
    "train": ("optax", "orbax-checkpoint", "grain", "matplotlib"),
    "export": ("onnx",),
}


class Check(NamedTuple):
    """The result of one check: `ok` is False if something is wrong, None if something optional is missing."""

    name: str
    ok: bool | None
    detail: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "path", "folders of models, data and indexes, whitening or moments files", nargs="*")
    add(parser, "--json", "one JSON object")


def run(args: argparse.Namespace) -> int:
    """Runs the command; the exit code is 1 if something is wrong."""
    return report(_all(args.path), args.json, lambda check: f"{check.name:<20} {check.detail}")


def report(checks: Iterable[Any], as_json: bool, line: Callable[[Any], str]) -> int:
    """Prints checks as they come, as lines or as one JSON object; the exit code is 1 if something is wrong."""
    from jaxwhiten.io import to_json

    found = []
    for check in checks:
        found.append(check)
        if not as_json:
            mark = {True: "ok  ", None: "--  ", False: "FAIL"}[check.ok]
            print(f"{mark} {line(check)}", flush=True)
    wrong = [check for check in found if check.ok is False]
    if as_json:
        told = {"ok": not wrong, "checks": [check._asdict() for check in found]}
        print(json.dumps(to_json(told), ensure_ascii=False))
    if wrong:
        first = " ".join(wrong[0].detail.split())
        print(f"error: {len(wrong)} of {len(found)} checks failed: {wrong[0].name}: {first}", file=sys.stderr)
    return 1 if wrong else 0


def _all(paths: list[str]) -> Iterator[Check]:
    yield Check("jaxwhiten", True, f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    yield from _versions()
    yield _guarded("devices", _devices)
    yield _guarded("matrix product", _product)
    yield _guarded("faiss", _faiss)
    yield _guarded("openvino", _openvino)
    yield _guarded("cache folder", _cache)
    for path in paths:
        yield _guarded(path, _path, Path(path))


def _guarded(name: str, look: Callable[..., Check | str], *args: Path) -> Check:
    """Runs one check; an error becomes its result."""
    try:
        found = look(*args)
        return found if isinstance(found, Check) else Check(name, True, found)
    except (JaxwhitenError, OSError, ImportError, RuntimeError) as error:
        return Check(name, False, str(error) or type(error).__name__)


def _versions() -> Iterator[Check]:
    optional = {package: extra for extra, packages in _OPTIONAL.items() for package in packages}
    versions = {package: _version(package) for package in (*_REQUIRED, *optional)}
    for package in _REQUIRED:
        if versions[package] is None:
            yield Check("packages", False, f"{package} is not installed: {install_command('cpu')}")
    yield Check("packages", True, ", ".join(f"{package} {found}" for package, found in versions.items() if found))
    missing = [f"{package} (extra {extra})" for package, extra in optional.items() if versions[package] is None]
    if missing:
        yield Check("optional packages", None, f"not installed: {', '.join(missing)}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> str:
    import jax

    devices = jax.local_devices()
    kinds = sorted({f"{device.platform} ({device.device_kind})" for device in devices})
    return f"{len(devices)} of {', '.join(kinds)}; {jax.process_count()} process, {cores()} CPU cores"


def _product() -> Check | str:
    """Checks that float32 products are computed in float32: a product on the device against the host's."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    device = np.asarray(jax.jit(lambda a: jnp.matmul(a, a.T, precision="highest"))(x), np.float64)
    exact = x.astype(np.float64) @ x.T.astype(np.float64)
    error = float(np.abs(device - exact).max() / np.abs(exact).max())
    return Check("matrix product", error < 1e-5, f"float32 on the device, relative error {error:.0e}")


def _faiss() -> Check | str:
    if importlib.util.find_spec("faiss") is None:
        return Check("faiss", None, f"not installed: {install_command('cpu')}; on a GPU machine the extra cuda")
    import faiss

    names = [f"faiss-{kind}" for kind in ("cpu", "gpu", "gpu-cu12") if _version(f"faiss-{kind}")]
    if len(names) > 1:
        return Check("faiss", False, f"{' and '.join(names)} are installed together: uninstall one of them")
    build = "GPU build" if hasattr(faiss, "StandardGpuResources") else "CPU build"
    gpus = f", {faiss.get_num_gpus()} GPUs" if build == "GPU build" else ""
    return f"{faiss.__version__}, {build}{gpus}, {faiss.get_compile_options().strip()}"


def _openvino() -> Check | str:
    if importlib.util.find_spec("openvino") is None:
        return Check("openvino", None, f"not installed: {install_command('openvino')}")
    from jaxwhiten.encoding.openvino import OpenVINOEngine

    default, _ = OpenVINOEngine.checked_dtype(None)
    nncf = _version("nncf")
    return f"{_version('openvino')}, {default} by default on this CPU, nncf {nncf or 'not installed'}"


def _cache() -> str:
    from jaxwhiten.io import cache_dir

    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"jaxwhiten")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free
    return f"{folder}: {size / 1e9:.2f} GB used, {free / 1e9:.0f} GB free on the disk"


def _path(path: Path) -> str:
    if path.is_file():
        from jaxwhiten.commands.inspect import load_fitted

        kind, fitted = load_fitted(str(path))
        return f"{kind} of {fitted.n_samples_seen_:,} rows, {fitted.n_features_in_} dimensions, rank {fitted.rank_}"
    if not path.is_dir():
        raise DataError("no such file or folder")
    if (path / "header.json").is_file():
        from jaxwhiten.search import load_index

        index = load_index(path)
        return f"{index.backend} index of {index.size:,} vectors, {index.dimension} dimensions"
    if any((path / name / "config.json").is_file() for name in ("", "0_Transformer")):
        return _model(path)
    return _data(path)


def _model(folder: Path) -> str:
    """Loads a model folder completely and encodes a sentence."""
    import numpy as np

    from jaxwhiten.encoding import Encoder
    from jaxwhiten.head import says_head
    from jaxwhiten.metrics.scores import cosine_pairs

    encoder = Encoder.from_pretrained(folder, pooling="auto" if says_head(folder) else "mean")
    texts = ["A sentence.", "Another one."]
    vectors = encoder.encode(texts)
    if not np.isfinite(vectors).all():
        raise ModelError("gives vectors that are not finite")
    if np.array_equal(*vectors):
        raise ModelError("gives the same vector for different sentences: tokenizer or weights are wrong")
    config, int8 = encoder.config, ""
    if (folder / "openvino" / "int8.json").is_file() and importlib.util.find_spec("openvino"):
        small = Encoder.from_pretrained(folder, pooling=encoder.pooling, engine="openvino", dtype="int8")
        cosine = cosine_pairs(*(each.before_whitening().encode(texts) for each in (encoder, small))).min()
        int8 = f"; int8 weights, whose vectors have a cosine of {cosine:.3f} to them"
        if not cosine > 0.8:  # `save_int8` gives 0.998 on average
            raise ModelError(f"{folder / 'openvino'}{int8}: make them again")
    return (
        f"{config.model_type}, {config.num_layers} layers of {config.hidden_size}, {config.parameters / 1e6:.1f} M"
        f" weights; vectors of {encoder.dimension} dimensions by {encoder.head.summary}{int8};"
        f" jaxwhiten verify {folder} proves them"
    )


def _data(folder: Path) -> str:
    """The STS tasks of a SentEval-style folder, each read and counted."""
    from jaxwhiten.datasets import STS_TASKS, load_sts

    found, missing = [], []
    for task in STS_TASKS:
        try:
            splits = load_sts(task, folder).splits
            found.append(f"{task} {'/'.join(f'{len(pairs):,}' for pairs in splits.values())}")
        except DataNotFoundError:
            missing.append(task)
    if not found:
        raise DataError("no model, index or data in it: no config.json, header.json or downstream/STS")
    return f"pairs of {', '.join(found)}" + (f"; not there: {', '.join(missing)}" if missing else "")
