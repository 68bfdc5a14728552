"""Checks with a result each, and those of this installation: packages, devices, FAISS, the cache folder."""

from __future__ import annotations

import collections
import importlib.metadata
import importlib.util
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jaxwhiten import progress
from jaxwhiten._version import __version__
from jaxwhiten.errors import InputError, JaxwhitenError, install_command
from jaxwhiten.io import cache_dir, writing
from jaxwhiten.runtime.hardware import cores

_REQUIRED = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers", "safetensors")
_OPTIONAL = {
    "data": ("pyarrow",),
    "train": ("optax", "orbax-checkpoint", "grain", "matplotlib"),
    "export": ("onnx",),
}

Measured = tuple[float, float, str]  # difference, allowed difference, and what was compared


class Finding(NamedTuple):
    """The result of a check: `ok` is None if it was skipped. Checks that compare numbers have figures."""

    name: str
    ok: bool | None
    detail: str
    difference: float | None = None
    allowed: float | None = None


class Skipped(Exception):
    """There is nothing to check; the message gives the reason."""


def finding(name: str, check: Callable[..., str | Measured], *args: object) -> Finding:
    """Runs a check, which returns a description or figures; its exception becomes the result."""
    progress.begin(f"checking {name}")
    try:
        detail = check(*args)
    except Skipped as reason:
        return Finding(name, None, str(reason))
    except Exception as error:  # whatever fails is the result
        kind = "" if isinstance(error, JaxwhitenError) else f"{type(error).__name__}: "
        return Finding(name, False, f"{kind}{error}")
    if isinstance(detail, str):
        return Finding(name, True, detail)
    difference, allowed, what = detail
    return Finding(name, bool(difference <= allowed), what, difference, allowed)


def version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def installation() -> Iterator[Finding]:
    """Checks what this process runs on; takes seconds, and needs no model."""
    yield Finding("jaxwhiten", True, f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    checks: dict[str, Callable[[], str | Measured]] = {"packages": _packages, "optional packages": _optional}
    checks |= {"devices": _devices, "matrix product": _product, "faiss": _faiss, "cache folder": _cache}
    for name, check in checks.items():
        yield finding(name, check)


def _packages() -> str:
    versions = {package: version(package) for packages in (_REQUIRED, *_OPTIONAL.values()) for package in packages}
    if missing := [package for package in _REQUIRED if versions[package] is None]:
        raise InputError(f"{', '.join(missing)}: not installed: {install_command('cpu')}")
    return ", ".join(f"{package} {installed}" for package, installed in versions.items() if installed)


def _optional() -> str:
    missing = [f"{name} (extra {extra})" for extra, names in _OPTIONAL.items() for name in names if not version(name)]
    if missing:
        raise Skipped(f"not installed: {', '.join(missing)}")
    return "all installed"


def _devices() -> str:
    import jax

    devices = jax.local_devices()
    kinds = sorted({f"{device.platform} ({device.device_kind})" for device in devices})
    return f"{len(devices)} of {', '.join(kinds)}; {jax.process_count()} process, {cores()} CPU cores"


def _product() -> Measured:
    """Checks that float32 products are computed in float32: a product on the device against the host's."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    device = np.asarray(jax.jit(lambda a: jnp.matmul(a, a.T, precision="highest"))(x), np.float64)
    exact = x.astype(np.float64) @ x.T.astype(np.float64)
    error = float(np.abs(device - exact).max() / np.abs(exact).max())
    return error, 1e-5, f"float32 on the device, relative error {error:.0e}"


def _faiss() -> str:
    if importlib.util.find_spec("faiss") is None:
        raise Skipped(f"not installed: {install_command('cpu')}; on a GPU machine the extra cuda")
    import faiss

    names = [f"faiss-{kind}" for kind in ("cpu", "gpu", "gpu-cu12") if version(f"faiss-{kind}")]
    if len(names) > 1:
        raise InputError(f"{' and '.join(names)} are installed together: uninstall one of them")
    build = "GPU build" if hasattr(faiss, "StandardGpuResources") else "CPU build"
    gpus = f", {faiss.get_num_gpus()} GPUs" if build == "GPU build" else ""
    return f"{faiss.__version__}, {build}{gpus}, {faiss.get_compile_options().strip()}"


def _cache() -> str:
    folder = cache_dir()
    with writing(folder, OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"jaxwhiten")
    sizes = collections.Counter[str]()
    for path in folder.rglob("*"):
        sizes[path.relative_to(folder).parts[0]] += path.stat().st_size if path.is_file() else 0
    each = "".join(f", {name} {size / 1e9:.2f}" for name, size in sizes.most_common() if size > 1e6)
    free = shutil.disk_usage(folder).free
    return f"{folder}: {sizes.total() / 1e9:.2f} GB used{each}, {free / 1e9:.0f} GB free on the disk"
